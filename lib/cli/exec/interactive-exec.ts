/** A command elsewhere with the standard input of this program, and with a terminal. */
import type { Readable } from 'node:stream';
import type { Terminal, TerminalSize } from '../../protocol/streams/stream.ts';
import type { Context } from '../invocation/context.ts';
import { EXIT, UsageError } from '../terminal/command-errors.ts';
import { UNKNOWN_TASK_HINT } from '../terminal/error-report.ts';
import { exitCodeOfSignal, onEndingSignal } from '../terminal/signals.ts';
import { EscapeInput } from './escape-input.ts';
import type { LogCursor } from './log-cursor.ts';
import { StreamResume } from './stream-resume.ts';
import { type StreamTaskEnd, startStreamTask } from './stream-task.ts';

interface InteractiveCommand {
  serverUuid: string;
  /** Creates the task; `stream` is the name of its stream. */
  create(stream: string, terminal: Terminal | undefined): Promise<{ id: string }>;
  interactive: boolean;
  tty: boolean;
  /** The exit code of leaving a terminal by ~. */
  exitWhenLeft?: number;
  /** What to do when the connection broke. */
  whenLost?: string;
  /** `create` continues what was broken off, from the cursor. */
  cursor?: LogCursor;
}

/** The exit code of timeout(1). */
const TIMED_OUT = 124;
/** The exit code of a shell. */
const NO_SUCH_PROGRAM = 127;
const SIGNAL_MS = 200;
const DEFAULT_SIZE: TerminalSize = { columns: 80, rows: 24 };

/** How to leave a terminal that does not answer, for help texts. */
export const ESCAPE_TEXT =
  'In a terminal that does not answer any more, type ~. at the beginning of a line: this program exits, and the command is \
ended. ~~ at the beginning of a line sends one ~.';

/** Returns the exit code of the command, or of this program. */
export async function interactiveExec(
  context: Context,
  { serverUuid, create, interactive, tty, exitWhenLeft = EXIT.interrupted, whenLost, cursor }: InteractiveCommand,
): Promise<number> {
  const { output, env, streams, clock, random } = context;
  const { stdin, stdout, stderr } = streams;
  if (tty && (stdin?.isTTY !== true || stdout.isTTY !== true))
    throw new UsageError('-t needs a terminal at standard input and output; leave it out in a pipe');
  const size = () => sizeOf(stdout);
  const terminal = tty ? { ...size(), type: env.TERM ?? 'xterm' } : undefined;
  const stopped = Promise.withResolvers<number>();
  const escapes = new EscapeInput(() => stopped.resolve(exitWhenLeft));
  const forwarded: Readable | undefined = interactive ? stdin : undefined;
  const input = tty ? forwarded?.pipe(escapes) : forwarded;
  output.onUnwritable = ({ code }) => {
    if (code !== 'EPIPE') return stopped.resolve(EXIT.incomplete);
    // If a signal ended the reader, this process receives it at the same moment, and it counts.
    clock.after(SIGNAL_MS, () => stopped.resolve(exitCodeOfSignal('SIGPIPE')));
  };
  const request = { serverUuid, create: (stream: string) => create(stream, terminal) };
  const io = { input, stdout, stderr, cursor };
  let running = await startStreamTask(context, request, io);
  const stop = onEndingSignal((signal) => stopped.resolve(exitCodeOfSignal(signal)));
  const resize = () => running.resize(size());
  try {
    if (tty) {
      stdin?.setRawMode(true);
      stdout.on('resize', resize);
    }
    let end = await Promise.race([running.ended, stopped.promise]);
    const arrived = () => cursor?.arrived ?? 0;
    const resume = new StreamResume({ clock, random, stopped: stopped.promise, arrived });
    while (typeof end !== 'number' && cursor?.resume !== undefined && isLost(end)) {
      output.note('the connection broke; continuing where it was');
      const again = await resume.again(() => startStreamTask(context, request, io));
      if (typeof again === 'number') return again;
      if (again === undefined) break;
      running = again;
      end = await Promise.race([running.ended, stopped.promise]);
    }
    if (typeof end === 'number') return end;
    const { message, exitCode } = describeEnd(end);
    const advice = whenLost === undefined || !isLost(end) ? '' : `; ${whenLost}`;
    if (message !== undefined) output.complain(`${message}${advice}; see cnapi task ${running.id.slice(0, 8)}`);
    return exitCode;
  } finally {
    if (tty) stdin?.setRawMode(false);
    stdout.off('resize', resize);
    forwarded?.unpipe(escapes).pause();
    running.close();
    stop();
  }
}

/** The connection broke, or the instance in between, or the agent, ends. */
function isLost({ status }: StreamTaskEnd): boolean {
  return status === undefined || ['StreamLost', 'InstanceDraining'].includes(status.error?.code ?? '');
}

/** The exit code of the command; a message if it has none. */
export function describeEnd({ status, reason }: StreamTaskEnd): { message?: string; exitCode: number } {
  if (status === undefined) return { message: `the connection broke: ${reason}`, exitCode: EXIT.failed };
  const { error, exit_code, signal } = status;
  if (error !== undefined) {
    const hint = error.code === 'UnknownTask' ? `. ${UNKNOWN_TASK_HINT}` : '';
    return { message: `${error.message} (${error.code})${hint}`, exitCode: CODES.get(error.code) ?? EXIT.failed };
  }
  if (typeof exit_code === 'number') return { exitCode: exit_code };
  return { exitCode: typeof signal === 'string' ? exitCodeOfSignal(signal) : EXIT.failed };
}

/** Exit codes for errors that other programs report in the same way. */
const CODES: ReadonlyMap<string, number> = new Map([
  ['TaskTimeout', TIMED_OUT],
  ['NoSuchProgram', NO_SUCH_PROGRAM],
]);

function sizeOf({ columns, rows }: { columns?: number; rows?: number }): TerminalSize {
  return { columns: columns || DEFAULT_SIZE.columns, rows: rows || DEFAULT_SIZE.rows };
}
