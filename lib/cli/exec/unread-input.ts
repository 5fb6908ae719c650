/**
 * Standard input of a command that does not read it. A user who gives input expects it to arrive,
 * so the command refuses it before anything runs instead of dropping it. A terminal, /dev/null and
 * an input that ends without a byte do not count as input. Neither does an open pipe that is silent
 * so far: if bytes arrive later, stderr reports them.
 */
import { fstatSync } from 'node:fs';
import type { Context } from '../invocation/context.ts';
import { UsageError } from '../terminal/command-errors.ts';
import type { Output } from '../terminal/output.ts';
import type { Streams } from '../terminal/streams.ts';

const REFUSAL = 'standard input does not reach the command';

export class UnreadInput {
  readonly #output: Output;
  readonly #stdin: Streams['stdin'];
  #hasArrived = false;
  #isRunning = false;

  /** Watches from now on. */
  constructor({ output, streams: { stdin } }: Pick<Context, 'output' | 'streams'>) {
    this.#output = output;
    this.#stdin = stdin;
    const kind = stdin === undefined ? 'none' : kindOfInput(stdin.fd);
    if (kind === 'file') this.#hasArrived = true;
    if (kind !== 'stream') return;
    stdin?.on('data', this.#onData).on('error', () => undefined);
    // It does not keep the process running.
    (stdin as { unref?: () => void } | undefined)?.unref?.();
  }

  /** Call before anything runs. @param way how the command could get input @throws UsageError */
  refuse(way: string): void {
    this.#isRunning = true;
    if (this.#hasArrived) throw new UsageError(`${REFUSAL}: nothing was run. Redirect it from /dev/null, or ${way}`);
  }

  close(): void {
    this.#stdin?.off('data', this.#onData);
    this.#stdin?.pause();
  }

  readonly #onData = (): void => {
    if (this.#isRunning && !this.#hasArrived) this.#output.complain(`${REFUSAL}; what came on it is dropped`);
    this.#hasArrived = true;
  };
}

/** `file`: a file with content; the content after its current position is not examined. */
function kindOfInput(fd: number): 'none' | 'file' | 'stream' {
  try {
    const input = fstatSync(fd);
    if (input.isFile()) return input.size > 0 ? 'file' : 'none';
    return input.isFIFO() || input.isSocket() ? 'stream' : 'none';
  } catch {
    return 'none';
  }
}
