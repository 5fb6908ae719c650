/**
 * Replies on a socket that has no response object: refused upgrades, and input that Node could not
 * parse.
 */
import { STATUS_CODES } from 'node:http';
import type { Duplex } from 'node:stream';
import type { Reply } from '../route.ts';

/** Sends `reply` and closes the connection. */
export function replyAndClose(socket: Duplex, reply: Reply): void {
  const content = JSON.stringify(reply.body);
  const head = [
    `HTTP/1.1 ${reply.status} ${STATUS_CODES[reply.status] ?? 'Refused'}`,
    'Connection: close',
    'Content-Type: application/json',
    `Content-Length: ${Buffer.byteLength(content)}`,
    ...Object.entries(reply.headers ?? {}).map(([name, value]) => `${name}: ${value}`),
  ];
  endAndClose(socket, `${head.join('\r\n')}\r\n\r\n${content}`);
}

/**
 * Closes both directions when all is sent: a caller that never closes its own would hold the
 * connection for ever.
 */
export function endAndClose(socket: Duplex, rest = ''): void {
  socket.once('error', () => socket.destroy());
  socket.once('finish', () => socket.destroy());
  socket.end(rest);
}
