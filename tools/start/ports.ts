/**
 * Loopback ports: checks whether one is free, finds a free one, checks whether one accepts
 * connections.
 */
import { createSocket } from 'node:dgram';
import { connect, createServer } from 'node:net';

const host = '127.0.0.1';

/** Whether a TCP server could listen on the port now. */
export function isTcpFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen({ port, host, exclusive: true }, () => server.close(() => resolve(true)));
  });
}

/** Whether a UDP socket could be bound to the port now. */
export function isUdpFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = createSocket('udp4');
    socket.once('error', () => {
      socket.close();
      resolve(false);
    });
    socket.bind({ port, address: host, exclusive: true }, () => socket.close(() => resolve(true)));
  });
}

/**
 * Returns a port that is free now: `remembered` if possible, so that a restart keeps it, otherwise
 * any.
 */
export async function freePort(remembered: number | undefined): Promise<number> {
  if (remembered !== undefined && (await isTcpFree(remembered))) return remembered;
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen(0, host, () => {
      const address = server.address();
      server.close(() => resolve(typeof address === 'object' && address !== null ? address.port : 0));
    });
  });
}

/** Whether a program accepts TCP connections on the port. */
export function isListening(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ port, host });
    const answer = (accepted: boolean) => {
      socket.destroy();
      resolve(accepted);
    };
    socket.once('connect', () => answer(true));
    socket.once('error', () => answer(false));
    socket.setTimeout(1000, () => answer(false));
  });
}
