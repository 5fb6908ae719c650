/**
 * `npm start -- --scale N` and similar: sends an operation to the running supervisor, and prints
 * its progress until it is done.
 */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { createInterface } from 'node:readline';
import { controlFile, encode, type Operation, parseAnswer } from './control.ts';
import { Refusal } from './refusal.ts';

export interface Asked {
  data: string;
  /** The running supervisor. */
  pid: number;
  operation: Operation;
}

/**
 * Resolves to a description of the resulting state.
 * @throws Refusal when the supervisor could not be asked, or did not do it
 */
export async function askRunning({ data, pid, operation }: Asked, say: (text: string) => void): Promise<string> {
  const socket = await reach(data, pid);
  socket.write(encode(operation));
  try {
    for await (const line of createInterface({ input: socket })) {
      const reply = parseAnswer(line);
      if (reply === undefined) break;
      if ('done' in reply) return reply.done;
      if ('refused' in reply) throw new Refusal(reply.refused);
      say(reply.progress);
    }
  } finally {
    socket.destroy();
  }
  throw new Refusal(`pid ${pid} ended before it was done`);
}

async function reach(data: string, pid: number): Promise<Socket> {
  const file = controlFile(data);
  const socket = connect(file);
  try {
    await once(socket, 'connect');
    socket.on('error', () => undefined);
    return socket;
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    const reason =
      code === 'EACCES'
        ? 'belongs to another user; ask as that user'
        : `cannot be asked at ${file} (${code}): it is starting or stopping, or its terminal says why`;
    throw new Refusal(`pid ${pid} ${reason}`, 1, cause);
  }
}
