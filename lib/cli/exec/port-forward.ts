/**
 * `cnapi port-forward`: ports of this machine that lead to ports of a server, as kubectl has it.
 */
import { createServer, isIPv6, type Server, type Socket } from 'node:net';
import { PassThrough } from 'node:stream';
import { getSystemErrorMessage } from 'node:util';
import { Command } from 'commander';
import { ClientStream } from '../../client/stream.ts';
import { messageOf } from '../../platform/errors.ts';
import { resetConnection } from '../../platform/network/reset-connection.ts';
import { streamContracts } from '../../protocol/api/streams.ts';
import { type CommandRunner, withExamples, withExplanation } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { findServer } from '../lookup/find.ts';
import { EXIT, RefusedError, UsageError } from '../terminal/command-errors.ts';
import { type EndingSignal, exitCodeOfSignal, onEndingSignal } from '../terminal/signals.ts';
import { describeEnd } from './interactive-exec.ts';
import { type StreamTaskEnd, startStreamTask } from './stream-task.ts';

interface Options {
  address: string;
}

interface Forward {
  /** 0: one that is free. */
  local: number;
  remote: number;
}

/** The server or VM to which connections are forwarded. */
interface ForwardTarget {
  /** The name that the user wrote. */
  name: string;
  serverUuid: string;
  /** Status of the server. */
  status: string | undefined;
  /** Starts the task of a connection. */
  connect(stream: string, port: number): Promise<{ id: string }>;
}

const MAX_PORT = 65_535;

const MORE = `
8080:80 listens on port 8080 of this machine and leads to port 80 of the server; 80 has the same number at both ends; :80 listens on \
a port that is free. The agent connects to the loopback address of its server, 127.0.0.1, and to nothing else.

Each connection is a task (cnapi tasks) and a stream of its own. It ends when both sides have ended, at the latest after a day. What it \
carries is not recorded. A connection that the server refuses is closed, and a line on stderr says why.

Ctrl-C ends all connections; the exit code is then 0.
`;

export function portForwardCommand(runner: CommandRunner): Command {
  const command = new Command('port-forward')
    .description('Forwards ports of this machine to ports of a server.')
    .usage('[options] <server> <port...>')
    .argument('<server>', 'uuid, the beginning of one, or hostname')
    .argument('<port...>', 'LOCAL:REMOTE, PORT or :REMOTE')
    .option('--address <address>', 'listen on this address of this machine', '127.0.0.1')
    .action(runner.action(portForward));
  return withExamples(withExplanation(command, MORE), [
    'cnapi port-forward web-1 8080:80',
    'cnapi port-forward web-1 5432 :9090',
    'cnapi port-forward web-1 8080:80 --address 0.0.0.0',
  ]);
}

async function portForward(context: Context, [name, ports]: readonly unknown[], { address }: Options): Promise<number> {
  const forwards = (ports as string[]).map(forwardIn);
  const { client } = context;
  const { uuid: serverUuid, status } = await findServer(client, name as string);
  const connect = (stream: string, port: number) =>
    client.ask(streamContracts.StartConnection, { server_uuid: serverUuid, stream, port });
  return forwardPorts(context, { name: name as string, serverUuid, status, connect }, { address, forwards });
}

/** Until a signal ends it. Returns the exit code. @throws RefusedError, ApiError */
export async function forwardPorts(
  context: Context,
  target: ForwardTarget,
  { address, forwards }: { address: string; forwards: readonly Forward[] },
): Promise<number> {
  await checkAccess(context, target);
  const stopped = Promise.withResolvers<EndingSignal>();
  const stop = onEndingSignal(stopped.resolve);
  const connections = new Set<Socket>();
  const listening: Server[] = [];
  try {
    for (const forward of forwards) {
      const server = createServer({ allowHalfOpen: true }, (socket) => {
        connections.add(socket);
        socket.once('close', () => connections.delete(socket));
        void carry(context, socket, { target, port: forward.remote });
      });
      const port = await listen(server, { address, port: forward.local });
      listening.push(server);
      tell(context, { address, port, remote: forward.remote, target });
    }
    const signal = await stopped.promise;
    return signal === 'SIGINT' ? EXIT.ok : exitCodeOfSignal(signal);
  } finally {
    stop();
    for (const server of listening) server.close();
    for (const socket of connections) socket.destroy();
  }
}

/**
 * Otherwise only the program that uses the port would meet the reason. A stream is what a
 * connection needs, so whoever may open one may connect. @throws RefusedError, ApiError,
 * NoAnswerError
 */
async function checkAccess({ client }: Context, { name, serverUuid, status }: ForwardTarget): Promise<void> {
  if (status !== undefined && status !== 'running')
    throw new RefusedError(`${name} cannot be reached: the agent of its server is not connected (${status})`);
  const ignore = () => undefined;
  const events = { output: () => true, drained: ignore, ended: ignore };
  (await ClientStream.open(client.http, serverUuid, events)).close();
}

/** @throws UsageError */
export function forwardIn(text: string): Forward {
  const [, local, remote = ''] = /^(?:(\d{0,5}):)?(\d{1,5})$/.exec(text) ?? [];
  const numbers = { local: Number(local ?? remote), remote: Number(remote) };
  if (remote === '' || numbers.remote < 1 || numbers.remote > MAX_PORT || numbers.local > MAX_PORT)
    throw new UsageError(
      `${text} is not a port; write LOCAL:REMOTE, PORT or :REMOTE, with numbers from 1 to ${MAX_PORT}`,
    );
  return numbers;
}

/** Resolves to the port. @throws RefusedError */
function listen(server: Server, { address, port }: { address: string; port: number }): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once('error', ({ errno, message }: NodeJS.ErrnoException) => {
      const reason = errno === undefined ? message : getSystemErrorMessage(errno);
      reject(new RefusedError(`cannot listen on ${endpoint(address, port)}: ${reason}`));
    });
    server.listen({ host: address, port }, () => {
      const bound = server.address();
      resolve(bound !== null && typeof bound === 'object' ? bound.port : port);
    });
  });
}

interface Listening {
  address: string;
  port: number;
  remote: number;
  target: ForwardTarget;
}

function tell({ output }: Context, { address, port, remote, target: { name, serverUuid } }: Listening): void {
  if (output.json)
    return output.record({ event: 'listening', address, port, server_uuid: serverUuid, remote_port: remote });
  output.line(`Forwarding ${endpoint(address, port)} -> ${name}:${remote}`);
}

const endpoint = (address: string, port: number): string => `${isIPv6(address) ? `[${address}]` : address}:${port}`;

/** One connection, until both sides have ended. Fails by a line on stderr. */
async function carry(
  context: Context,
  socket: Socket,
  { target, port }: { target: ForwardTarget; port: number },
): Promise<void> {
  let hasEnded = false;
  const closed = new Promise<'closed'>((resolve) => socket.once('close', () => resolve('closed')));
  // The event close follows.
  socket.on('error', () => undefined);
  const io = {
    input: socket,
    stdout: socket,
    stderr: new PassThrough().resume(),
    onOutputEnd: () => {
      hasEnded = true;
      socket.end();
    },
  };
  const { name, serverUuid } = target;
  const create = (stream: string) => target.connect(stream, port);
  try {
    const task = await startStreamTask(context, { serverUuid, create }, io);
    // Closed by both sides: the agent sees it, too, and says so.
    const end = await Promise.race([
      task.ended,
      closed.then<StreamTaskEnd | 'closed'>((gone) => (isComplete() ? task.ended : gone)),
    ]);
    task.close();
    if (end === 'closed') return;
    const { message } = describeEnd(end);
    if (message === undefined) return void socket.end();
    context.output.complain(`${name}:${port}: ${message}`);
    resetConnection(socket);
  } catch (error) {
    if (!socket.destroyed) context.output.complain(`${name}:${port}: ${messageOf(error)}`);
    resetConnection(socket);
  }

  function isComplete(): boolean {
    return hasEnded && socket.readableEnded && socket.writableFinished;
  }
}
