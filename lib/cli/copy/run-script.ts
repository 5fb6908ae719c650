/**
 * Runs one of the scripts of a copy at its other end. An error at this end, a signal and a lost
 * connection end the script; what it has not completed it removes.
 */

import { PassThrough, type Readable, Writable } from 'node:stream';
import { finished } from 'node:stream/promises';
import { SENT_CHANGED } from '../../protocol/streams/copy/copy-scripts.ts';
import { describeEnd } from '../exec/interactive-exec.ts';
import type { StreamIo, StreamTask } from '../exec/stream-task.ts';
import type { Context } from '../invocation/context.ts';
import { EXIT } from '../terminal/command-errors.ts';
import type { Output } from '../terminal/output.ts';
import { exitCodeOfSignal, onEndingSignal } from '../terminal/signals.ts';

export type StartScript = (params: { script: string; args: string[] }, io: StreamIo) => Promise<StreamTask>;

interface Script {
  script: string;
  args: readonly string[];
  input: Readable | undefined;
  output: Writable;
  signals: EndingSignals;
}

/** Takes the signals that end this program, until it is disposed. */
export class EndingSignals {
  readonly #first = Promise.withResolvers<number>();
  readonly #stop = onEndingSignal((signal) => this.#first.resolve(exitCodeOfSignal(signal)));

  /** The exit code of the first one. */
  get first(): Promise<number> {
    return this.#first.promise;
  }

  [Symbol.dispose](): void {
    this.#stop();
  }
}

/** Limits of the remote stderr that is shown. */
const MAX_LINES = 50;
const MAX_LINE_BYTES = 4096;

/**
 * Returns the exit code of this program: of `settle` if the script has sent everything, with 0 or
 * SENT_CHANGED. A signal does not interrupt `settle`. @throws the error of `input` or `output`
 */
export async function runScript(
  context: Context,
  start: StartScript,
  { script, args, input, output, signals }: Script,
  settle: (code: number) => Promise<number> = async (code) => (code === EXIT.ok ? EXIT.ok : EXIT.failed),
): Promise<number> {
  const failed = Promise.withResolvers<never>();
  // They may fail before anybody waits.
  failed.promise.catch(() => undefined);
  for (const stream of [input, output]) stream?.once('error', failed.reject);
  const remoteStderr = new RemoteStderr(context.output);
  const starting = start({ script, args: [...args] }, { input, stdout: output, stderr: remoteStderr });
  const close = () => void starting.then((running) => running.close()).catch(() => undefined);
  try {
    const running = await Promise.race([starting, signals.first, failed.promise]);
    if (typeof running === 'number') return running;
    const end = await Promise.race([running.ended, signals.first, failed.promise]);
    if (typeof end === 'number') return end;
    remoteStderr.end();
    const { message, exitCode } = describeEnd(end);
    if (message !== undefined) context.output.complain(`${message}; see cnapi task ${running.id.slice(0, 8)}`);
    else if (exitCode === EXIT.ok || exitCode === SENT_CHANGED) {
      output.end();
      await Promise.race([finished(output), failed.promise]);
      return await settle(exitCode);
    } else if (remoteStderr.isSilent) context.output.complain(`the copy ended with ${exitCode} at the other end`);
    return message !== undefined && exitCode !== EXIT.ok ? exitCode : EXIT.failed;
  } finally {
    close();
    input?.destroy();
    output.destroy();
  }
}

export const discard = (): Writable => new PassThrough().resume();

/** Shows the standard error of the script line by line, with control characters escaped. */
class RemoteStderr extends Writable {
  readonly #output: Output;
  #line = '';
  #lines = 0;

  constructor(output: Output) {
    super();
    this.#output = output;
  }

  get isSilent(): boolean {
    return this.#lines === 0;
  }

  override _write(piece: Buffer, _encoding: string, done: () => void): void {
    const lines = (this.#line + piece.toString()).split('\n');
    this.#line = (lines.pop() ?? '').slice(0, MAX_LINE_BYTES);
    for (const line of lines) this.#say(line);
    done();
  }

  override _final(done: () => void): void {
    if (this.#line !== '') this.#say(this.#line);
    done();
  }

  #say(line: string): void {
    this.#lines += 1;
    if (this.#lines <= MAX_LINES) this.#output.complain(line.slice(0, MAX_LINE_BYTES));
    else if (this.#lines === MAX_LINES + 1) this.#output.complain('more was said, which is left out');
  }
}
