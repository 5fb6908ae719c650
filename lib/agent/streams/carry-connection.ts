/**
 * Carries a TCP connection over a stream; each direction ends by itself. Used by `connect` and
 * `vm_connect`.
 */
import type { Socket } from 'node:net';
import { finished } from 'node:stream/promises';
import { resetConnection } from '../../platform/network/reset-connection.ts';
import { TaskFailure } from '../task-failure.ts';
import type { JoinedStream } from './joined-stream.ts';

interface Connection {
  signal: AbortSignal;
  /** Where it leads to, for messages. */
  at: string;
}

/**
 * Resolves when both directions have ended, to the bytes as the server's program counts them.
 * @throws TaskFailure
 */
export async function carryConnection(
  socket: Socket,
  { stdin, stdout }: JoinedStream,
  { signal, at }: Connection,
): Promise<{ bytesReceived: number; bytesSent: number }> {
  let failure: NodeJS.ErrnoException | undefined;
  socket.on('error', (error) => {
    failure = error;
  });
  const reset = () => resetConnection(socket);
  if (signal.aborted) reset();
  else signal.addEventListener('abort', reset);
  stdin.pipe(socket);
  // Its end is the end of this direction.
  socket.pipe(stdout);
  await new Promise<void>((resolve) => socket.once('close', () => resolve()));
  signal.removeEventListener('abort', reset);
  stdin.unpipe(socket);
  if (signal.aborted) throw signal.reason;
  if (failure !== undefined) throw connectionFailure(failure, at);
  await finished(stdout, { signal }).catch((error: unknown) => {
    throw signal.aborted ? signal.reason : error;
  });
  return { bytesReceived: socket.bytesWritten, bytesSent: socket.bytesRead };
}

export function connectionFailure(cause: NodeJS.ErrnoException, at: string): TaskFailure {
  if (cause.code === 'ECONNREFUSED') return new TaskFailure('ConnectionRefused', `Nothing listens on ${at}`, { cause });
  if (cause.syscall === 'connect')
    return new TaskFailure('ConnectionRefused', `${at} cannot be reached: ${cause.message}`, { cause });
  return new TaskFailure('ConnectionLost', `The connection to ${at} broke: ${cause.message}`, { cause });
}
