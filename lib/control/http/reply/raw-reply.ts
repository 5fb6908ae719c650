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
  socket.once('error', () => socket.destroy());
  // A caller that never closes its own side would hold the connection for ever.
  socket.once('finish', () => socket.destroy());
  socket.end(`${head.join('\r\n')}\r\n\r\n${content}`);
}
