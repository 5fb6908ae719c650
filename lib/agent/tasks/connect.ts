/**
 * `connect {stream, port}` → `{bytesReceived, bytesSent}`, as the server's program counts them. A TCP
 * connection to a port of this server, at its loopback address only: an operator could reach what
 * listens there with a command as well. Each direction ends by itself.
 */
import { connect } from 'node:net';
import { finished } from 'node:stream/promises';
import { z } from 'zod';
import { streamPlace } from '../../protocol/streams/stream.ts';
import type { JoinedStream } from '../streams/joined-stream.ts';
import { TaskFailure } from '../task-failure.ts';
import { onStream } from './on-stream.ts';
import { defineTask } from './task.ts';

const LOOPBACK = '127.0.0.1';

const params = z.object({ stream: streamPlace, port: z.int().min(1).max(65_535) });

export const connectTask = defineTask({
  lane: 'streams',
  params,
  run({ stream: place, port }, context) {
    return onStream(place, context, (stream, signal) => carry(stream, { port, signal }));
  },
});

/** Resolves when both directions have ended. @throws TaskFailure */
async function carry({ stdin, stdout }: JoinedStream, { port, signal }: { port: number; signal: AbortSignal }) {
  const socket = connect({ host: LOOPBACK, port, allowHalfOpen: true });
  let failure: NodeJS.ErrnoException | undefined;
  socket.on('error', (error) => {
    failure = error;
  });
  const destroy = () => void socket.destroy();
  if (signal.aborted) destroy();
  else signal.addEventListener('abort', destroy);
  stdin.pipe(socket);
  // Its end is the end of this direction.
  socket.pipe(stdout);
  await new Promise<void>((resolve) => socket.once('close', () => resolve()));
  signal.removeEventListener('abort', destroy);
  stdin.unpipe(socket);
  if (signal.aborted) throw signal.reason;
  if (failure !== undefined) throw failureOf(failure, port);
  await finished(stdout);
  return { bytesReceived: socket.bytesWritten, bytesSent: socket.bytesRead };
}

function failureOf(cause: NodeJS.ErrnoException, port: number): TaskFailure {
  const at = `${LOOPBACK}:${port} of the server`;
  if (cause.code === 'ECONNREFUSED') return new TaskFailure('ConnectionRefused', `Nothing listens on ${at}`, { cause });
  if (cause.syscall === 'connect')
    return new TaskFailure('ConnectionRefused', `${at} cannot be reached: ${cause.message}`, { cause });
  return new TaskFailure('ConnectionLost', `The connection to ${at} broke: ${cause.message}`, { cause });
}
