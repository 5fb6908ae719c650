/** `cnapi exec -i` and `-t`: a command with the standard input of this program, and with a terminal. */
import type { TerminalSize } from '../../protocol/streams/stream.ts';
import type { Context } from '../invocation/context.ts';
import { exitCodeOfSignal, onEndingSignal } from '../terminal/signals.ts';
import { EXIT, UsageError } from '../terminal/usage-error.ts';
import { type ExecEnd, type StreamedExecRequest, startExec } from './exec-stream.ts';

interface InteractiveCommand extends Omit<StreamedExecRequest, 'terminal'> {
  interactive: boolean;
  tty: boolean;
}

/** As timeout(1). */
const TIMED_OUT = 124;
const DEFAULT_SIZE: TerminalSize = { columns: 80, rows: 24 };

/** Returns the exit code of the command, or of this program. */
export async function streamedExec(
  context: Context,
  { interactive, tty, ...request }: InteractiveCommand,
): Promise<number> {
  const { output, env, streams } = context;
  const { stdin, stdout, stderr } = streams;
  if (tty && (stdin?.isTTY !== true || stdout.isTTY !== true))
    throw new UsageError('-t needs a terminal at standard input and output; leave it out in a pipe');
  const size = () => sizeOf(stdout);
  const terminal = tty ? { ...size(), type: env.TERM ?? 'xterm' } : undefined;
  const input = interactive ? stdin : undefined;
  const running = await startExec(context, { ...request, terminal }, { input, stdout, stderr });
  const stopped = Promise.withResolvers<number>();
  const stop = onEndingSignal((signal) => {
    running.close();
    stopped.resolve(exitCodeOfSignal(signal));
  });
  const resize = () => running.resize(size());
  try {
    if (tty) {
      stdin?.setRawMode(true);
      stdout.on('resize', resize);
    }
    const end = await Promise.race([running.ended, stopped.promise]);
    if (typeof end === 'number') return end;
    const { message, exitCode } = saidOf(end);
    if (message !== undefined) output.complain(`${message}; see cnapi task ${running.id.slice(0, 8)}`);
    return exitCode;
  } finally {
    if (tty) stdin?.setRawMode(false);
    stdout.off('resize', resize);
    input?.pause();
    running.close();
    stop();
  }
}

/** The exit code of the command; a message if it has none. */
export function saidOf({ status, reason }: ExecEnd): { message?: string; exitCode: number } {
  if (status === undefined) return { message: `the connection broke: ${reason}`, exitCode: EXIT.failed };
  const { error, exit_code, signal } = status;
  if (error !== undefined) {
    const exitCode = error.code === 'TaskTimeout' ? TIMED_OUT : EXIT.failed;
    return { message: `${error.message} (${error.code})`, exitCode };
  }
  if (typeof exit_code === 'number') return { exitCode: exit_code };
  return { exitCode: typeof signal === 'string' ? exitCodeOfSignal(signal) : EXIT.failed };
}

function sizeOf({ columns, rows }: { columns?: number; rows?: number }): TerminalSize {
  return { columns: columns || DEFAULT_SIZE.columns, rows: rows || DEFAULT_SIZE.rows };
}
