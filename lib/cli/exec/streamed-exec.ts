/**
 * `cnapi exec -i` and `-t`: a command on one server with the standard input of this program, and
 * with a terminal. The command is a task; its input and output is a stream (docs/design/streams.md).
 */
import type { Params } from '../../client/request.ts';
import { ClientStream } from '../../client/stream.ts';
import type { NamedServer } from '../../protocol/api/servers.ts';
import { streamContracts } from '../../protocol/api/streams.ts';
import type { StreamStatus, Terminal, TerminalSize } from '../../protocol/streams/stream.ts';
import type { Context } from '../invocation/context.ts';
import { errorOf } from '../runs/task-end.ts';
import { exitCodeOfSignal, onEndingSignal } from '../terminal/signals.ts';
import { EXIT, UsageError } from '../terminal/usage-error.ts';

interface InteractiveCommand {
  server: NamedServer;
  /** Of the task. */
  params: Record<string, unknown>;
  timeoutMs: number | undefined;
  ticketUuid: string | undefined;
  interactive: boolean;
  tty: boolean;
}

/** Between the end of the task and that of its stream, which comes first as a rule. */
const STATUS_WITHIN_MS = 2_000;
/** As timeout(1). */
const TIMED_OUT = 124;
const DEFAULT_SIZE: TerminalSize = { columns: 80, rows: 24 };

/** Returns the exit code of the command, or of this program. */
export async function streamedExec(context: Context, command: InteractiveCommand): Promise<number> {
  const { client, output, env, streams } = context;
  const { stdin } = streams;
  if (command.tty && (stdin?.isTTY !== true || streams.stdout.isTTY !== true))
    throw new UsageError('-t needs a terminal at standard input and output; leave it out in a pipe');
  const ended = Promise.withResolvers<{ status: StreamStatus | undefined; reason: string }>();
  let input: NodeJS.ReadStream | undefined;
  const stream = await ClientStream.open(client.http, command.server.uuid, {
    output(channel, bytes) {
      const target = streams[channel];
      const goOn = target.write(bytes);
      if (!goOn) target.once('drain', () => stream.resume());
      return goOn;
    },
    drained: () => input?.resume(),
    ended: (status, reason) => ended.resolve({ status, reason }),
  });
  let stoppedBy: number | undefined;
  const stop = onEndingSignal((signal) => {
    stoppedBy = exitCodeOfSignal(signal);
    stream.close();
    ended.resolve({ status: undefined, reason: 'stopped' });
  });
  const size = () => sizeOf(streams.stdout);
  const resize = () => stream.resize(size());
  try {
    const terminal: Terminal | undefined = command.tty ? { ...size(), type: env.TERM ?? 'xterm' } : undefined;
    const { id } = await client.ask(streamContracts.StartExec, {
      server_uuid: command.server.uuid,
      stream: stream.name,
      ...command.params,
      ...(terminal !== undefined && { terminal }),
      ...(command.timeoutMs !== undefined && { timeout_ms: command.timeoutMs }),
      ...(command.ticketUuid !== undefined && { ticket_uuid: command.ticketUuid }),
    } as Params<typeof streamContracts.StartExec>);
    if (command.interactive) input = passOn(stdin, stream);
    else stream.endInput();
    if (command.tty) {
      stdin?.setRawMode(true);
      streams.stdout.on('resize', resize);
    }
    void watch(context, id, ended);
    const { status, reason } = await ended.promise;
    if (stoppedBy !== undefined) return stoppedBy;
    if (status?.error === undefined && typeof status?.exit_code === 'number') return status.exit_code;
    if (status?.error === undefined && typeof status?.signal === 'string') return exitCodeOfSignal(status.signal);
    const { message, code } = status?.error ?? { message: `the connection broke (${reason})`, code: undefined };
    output.complain(`${code === undefined ? message : `${message} (${code})`}; see cnapi task ${id.slice(0, 8)}`);
    return code === 'TaskTimeout' ? TIMED_OUT : EXIT.failed;
  } finally {
    if (command.tty) stdin?.setRawMode(false);
    streams.stdout.off('resize', resize);
    input?.pause();
    input?.unref?.();
    stream.close();
    stop();
  }
}

/** A task that ends without its stream, because the agent refuses it, says why. */
async function watch(
  { client, clock }: Context,
  id: string,
  ended: PromiseWithResolvers<{ status: StreamStatus | undefined; reason: string }>,
): Promise<void> {
  for await (const { name, data } of client.followTask(id)) {
    if (name !== 'end') continue;
    const message = errorOf(data);
    if (message === undefined) return;
    await clock.sleep(STATUS_WITHIN_MS);
    ended.resolve({ status: undefined, reason: message });
  }
}

function passOn(stdin: Context['streams']['stdin'], stream: ClientStream): NodeJS.ReadStream | undefined {
  if (stdin === undefined) {
    stream.endInput();
    return undefined;
  }
  stdin.on('data', (bytes: Buffer) => {
    if (!stream.send(Buffer.from(bytes))) stdin.pause();
  });
  stdin.once('end', () => stream.endInput());
  stdin.once('error', () => stream.endInput());
  return stdin;
}

function sizeOf({ columns, rows }: { columns?: number; rows?: number }): TerminalSize {
  return { columns: columns || DEFAULT_SIZE.columns, rows: rows || DEFAULT_SIZE.rows };
}
