/**
 * Work of an agent whose input and output are streams of this program: a task and its stream
 * (docs/design/streams.md). Used by `cnapi exec -i`, `cnapi cp`, `cnapi port-forward`,
 * `cnapi vm exec`, `cnapi vm console` and `cnapi vm logs`.
 */
import type { Readable, Writable } from 'node:stream';
import type { Params } from '../../client/request.ts';
import { ClientStream } from '../../client/stream.ts';
import { withoutUndefined } from '../../platform/defined-fields.ts';
import { messageOf } from '../../platform/errors.ts';
import { streamContracts } from '../../protocol/api/streams.ts';
import { type StreamStatus, streamStatus, type Terminal, type TerminalSize } from '../../protocol/streams/stream.ts';
import type { Context } from '../invocation/context.ts';
import { errorOf } from '../output/task-end.ts';
import type { LogCursor } from './log-cursor.ts';

/** Work on a server as a task; `stream` is the name of its stream. */
interface StreamTaskRequest {
  serverUuid: string;
  create(stream: string): Promise<{ id: string }>;
}

interface ExecTaskRequest {
  serverUuid: string;
  /** Parameters of the task: script, args, env. */
  params: Record<string, unknown>;
  terminal?: Terminal | undefined;
  timeoutMs?: number | undefined;
  ticketUuid?: string | undefined;
}

export interface StreamIo {
  /** Undefined: the command reads nothing. */
  input: Readable | undefined;
  stdout: Writable;
  stderr: Writable;
  /** Called when the output of a connection ends, which may be before its input ends. */
  onOutputEnd?: () => void;
  /** Told of output and positions as they arrive, to continue after the connection has broken. */
  cursor?: LogCursor | undefined;
}

export interface StreamTaskEnd {
  /** Undefined: the connection broke, or the task ended without it; `reason` says why. */
  status: StreamStatus | undefined;
  reason: string;
}

export interface StreamTask {
  /** The id of the task. */
  id: string;
  ended: Promise<StreamTaskEnd>;
  resize(size: TerminalSize): void;
  /** Ends the command, if it has not ended. */
  close(): void;
}

/** Between the end of the task and that of its stream, which comes first as a rule. */
const STATUS_WITHIN_MS = 2_000;

/** Runs a command on a server; as `startStreamTask`. */
export function startExec(context: Context, request: ExecTaskRequest, io: StreamIo): Promise<StreamTask> {
  return startStreamTask(context, { serverUuid: request.serverUuid, create: createExec(context, request) }, io);
}

/** Creates the task of a command. */
export function createExec(
  { client }: Context,
  { serverUuid, params, terminal, timeoutMs, ticketUuid }: ExecTaskRequest,
): StreamTaskRequest['create'] {
  return (stream) =>
    client.ask(streamContracts.StartExec, {
      server_uuid: serverUuid,
      stream,
      ...params,
      ...withoutUndefined({ terminal, timeout_ms: timeoutMs, ticket_uuid: ticketUuid }),
    } as Params<typeof streamContracts.StartExec>);
}

/** Resolves when the task has been accepted. @throws ApiError, NoAnswerError */
export async function startStreamTask(
  context: Context,
  { serverUuid, create }: StreamTaskRequest,
  { input, stdout, stderr, onOutputEnd, cursor }: StreamIo,
): Promise<StreamTask> {
  const { client } = context;
  const outputs = { stdout, stderr };
  const ended = Promise.withResolvers<StreamTaskEnd>();
  /** Outputs that take no more for now. */
  const waiting = new Set<Writable>();
  let hasJoined = false;
  const stream = await ClientStream.open(client.http, serverUuid, {
    output(channel, bytes) {
      hasJoined = true;
      cursor?.received(channel, bytes.length);
      const target = outputs[channel];
      const goOn = target.write(bytes);
      if (!goOn && !waiting.has(target)) {
        waiting.add(target);
        target.once('drain', () => {
          waiting.delete(target);
          stream.resume();
        });
      }
      return goOn;
    },
    outputEnded: () => onOutputEnd?.(),
    position: (position) => cursor?.reached(position),
    drained: () => input?.resume(),
    ended: (status, reason) => ended.resolve({ status, reason }),
  });
  try {
    const { id } = await create(stream.name);
    passOn(input, stream, (error) => {
      // Not as its end: the command would take what it has got for everything.
      stream.close();
      ended.resolve({ status: undefined, reason: `its input cannot be read: ${messageOf(error)}` });
    });
    // A stream that cannot be followed ends by itself.
    void watch(context, id, (end) => hasJoined || ended.resolve(end)).catch(() => undefined);
    return { id, ended: ended.promise, resize: (size) => stream.resize(size), close: () => stream.close() };
  } catch (error) {
    stream.close();
    throw error;
  }
}

/**
 * A task that ends without its stream, because the agent refuses it, says why. Once the agent has
 * sent anything, the stream says how it ends, however slowly its output is read.
 */
async function watch({ client, clock }: Context, id: string, resolve: (end: StreamTaskEnd) => void): Promise<void> {
  for await (const { name, data } of client.followTask(id)) {
    if (name !== 'end') continue;
    const reason = errorOf(data);
    if (reason === undefined) return;
    await clock.sleep(STATUS_WITHIN_MS);
    const { error } = streamStatus.pick({ error: true }).safeParse(data).data ?? {};
    resolve({ status: error && { error }, reason });
  }
}

function passOn(input: Readable | undefined, stream: ClientStream, onFailed: (error: Error) => void): void {
  if (input === undefined) return stream.endInput();
  input.on('data', (bytes: Buffer) => {
    if (!stream.send(bytes)) input.pause();
  });
  input.once('end', () => stream.endInput());
  input.once('error', onFailed);
}
