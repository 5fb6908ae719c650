/**
 * Answers on a socket that has no response object: refused upgrades, and input that Node could not
 * parse.
 */
import { STATUS_CODES } from 'node:http';
import type { Duplex } from 'node:stream';
import type { Clock, Timer } from '../../../platform/time/clock.ts';
import type { RouteAnswer } from '../route.ts';

/** Limits the time in which the caller may close its side, and the bytes that it may still send. */
const DRAIN_MS = 1000;
const DRAIN_BYTES = 256 * 1024;

/** Sends `answer` and closes the connection. */
export function answerAndClose(socket: Duplex, answer: RouteAnswer, clock: Clock): void {
  const content = JSON.stringify(answer.body);
  const head = [
    `HTTP/1.1 ${answer.status} ${STATUS_CODES[answer.status] ?? 'Refused'}`,
    'Connection: close',
    'Content-Type: application/json',
    `Content-Length: ${Buffer.byteLength(content)}`,
    ...Object.entries(answer.headers ?? {}).map(([name, value]) => `${name}: ${value}`),
  ];
  socket.once('error', () => socket.destroy());
  drain(socket, clock);
  socket.end(`${head.join('\r\n')}\r\n\r\n${content}`);
}

/**
 * A connection that is closed with unread bytes is reset, and the caller may lose the answer. So
 * what it still sends is read and dropped until it closes its side, within limits.
 */
function drain(socket: Duplex, clock: Clock): void {
  let bytes = 0;
  let timer: Timer | undefined;
  let hasEnded = socket.readableEnded;
  // Else Node would parse it.
  socket.removeAllListeners('data');
  socket.on('data', (piece: Buffer) => {
    bytes += piece.length;
    if (bytes > DRAIN_BYTES) socket.destroy();
  });
  socket.once('end', () => {
    hasEnded = true;
    if (socket.writableFinished) socket.destroy();
  });
  socket.once('finish', () => {
    if (hasEnded) socket.destroy();
    else timer = clock.after(DRAIN_MS, () => socket.destroy());
  });
  socket.once('close', () => timer?.cancel());
  socket.resume();
}
