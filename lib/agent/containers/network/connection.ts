/**
 * Connects to a port of a container from the inside of its network. A short-lived child enters the
 * network (nsenter), connects, and hands the connection over; a process of the agent itself cannot
 * enter it, because all threads of a process share one network.
 */
import { spawn } from 'node:child_process';
import { open } from 'node:fs/promises';
import { Socket } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { ContainerError } from '../container-errors.ts';
import { findProgram } from '../linux/programs.ts';

/** Why the program of the container did not take the connection, as Node says it. */
type ConnectionFailure = NodeJS.ErrnoException;

interface Wanted {
  port: number;
  signal: AbortSignal;
  /** Ids on the machine of the processes of the container now. */
  processes(): Promise<readonly number[]>;
}

const PROGRAM = join(import.meta.dirname, 'connection-main.ts');
const WITHIN_MS = 20_000;

/**
 * @throws ContainerError if the network cannot be entered; the signal's reason. Undefined if the
 * container has no process
 */
export async function connectInside({
  port,
  signal,
  processes,
}: Wanted): Promise<{ socket: Socket } | { failure: ConnectionFailure } | undefined> {
  const nsenter = await findProgram('nsenter');
  if (nsenter === undefined) throw new ContainerError('This server has no nsenter; install util-linux');
  const [pid] = await processes();
  if (pid === undefined) return undefined;
  await using network = await openNetwork(pid);
  // The number may be that of another process by now, and what it has may be the network of the
  // machine.
  if (network === undefined || !(await processes()).includes(pid)) return undefined;
  await using own = await open('/proc/self/ns/net');
  if ((await network.stat()).ino === (await own.stat()).ino)
    throw new ContainerError('The container has no network of its own');
  return handedOver(
    [nsenter, '--net=/proc/self/fd/3', '--', process.execPath, PROGRAM, String(port)],
    network.fd,
    signal,
  );
}

async function openNetwork(pid: number) {
  return open(`/proc/${pid}/ns/net`).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
}

async function handedOver(
  [file = '', ...args]: readonly string[],
  network: number,
  signal: AbortSignal,
): Promise<{ socket: Socket } | { failure: ConnectionFailure }> {
  signal.throwIfAborted();
  const child = spawn(file, args, {
    cwd: '/',
    env: { PATH: process.env.PATH },
    stdio: ['ignore', 'ignore', 'pipe', network, 'ipc'],
    timeout: WITHIN_MS,
    killSignal: 'SIGKILL',
  });
  const abort = () => void child.kill('SIGKILL');
  signal.addEventListener('abort', abort);
  const complaints = child.stderr === null ? Promise.resolve('') : text(child.stderr);
  try {
    return await new Promise((resolve, reject) => {
      child.once('error', reject);
      child.once('message', ({ failure }: { failure?: ConnectionFailure }, socket) => {
        if (failure !== undefined) return resolve({ failure });
        if (!(socket instanceof Socket)) return reject(new ContainerError('The connection was closed immediately'));
        socket.allowHalfOpen = true;
        resolve({ socket });
      });
      child.once('close', async () => {
        if (signal.aborted) return reject(signal.reason);
        reject(new ContainerError(`The network of the container cannot be entered: ${(await complaints).trim()}`));
      });
    });
  } finally {
    signal.removeEventListener('abort', abort);
  }
}
