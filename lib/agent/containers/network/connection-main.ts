/**
 * Runs in the network of a container, as a child of the agent: connects to a port of its loopback
 * address and hands the connection to the agent, which then has it without this program
 * (connection.ts). Nothing is read before: what arrives early belongs to the agent.
 */
import { Socket } from 'node:net';

const socket = new Socket({ allowHalfOpen: true });
socket.pause();
socket.once('error', ({ code, message, syscall }: NodeJS.ErrnoException) =>
  end({ failure: { code, message, syscall } }),
);
socket.connect({ host: '127.0.0.1', port: Number(process.argv[2]) }, () => end({}, socket));

function end(message: object, connected?: Socket): void {
  process.send?.(message, connected, {}, () => process.disconnect());
}
