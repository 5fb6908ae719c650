/**
 * The floor of streams: a relay of WebSockets that does nothing else. Two clients of the same path
 * are a pair; what one sends, the other one gets.
 */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type WebSocket, WebSocketServer } from 'ws';
import { answerQuestions } from '../asked.ts';

const HIGH_BYTES = 256 * 1024;
const BINARY = { binary: true };

const waiting = new Map<string, WebSocket>();
const http = createServer();
const server = new WebSocketServer({ server: http, perMessageDeflate: false });
server.on('connection', (socket, { url = '' }) => {
  const other = waiting.get(url);
  if (other === undefined) return void waiting.set(url, socket);
  waiting.delete(url);
  join(socket, other);
  join(other, socket);
});
await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve));
const { port } = http.address() as AddressInfo;

answerQuestions({ url: async () => `http://127.0.0.1:${port}` });

function join(from: WebSocket, to: WebSocket): void {
  from.on('message', (data) => {
    to.send(data as Buffer, BINARY, () => {
      if (from.isPaused && to.bufferedAmount < HIGH_BYTES / 4) from.resume();
    });
    if (to.bufferedAmount > HIGH_BYTES) from.pause();
  });
  from.on('close', () => to.close());
}
