/**
 * The floor for the work of an instance for connected agents: a bare `ws` server that parses
 * frames, answers them, and does nothing else. It also answers hello, so that the same client works
 * with both.
 */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { WebSocketServer } from 'ws';
import { answerQuestions } from '../asked.ts';
import { useAnswers } from '../use.ts';

const WELCOME = JSON.stringify({ type: 'welcome', epoch: 1 });

const http = createServer();
const server = new WebSocketServer({ server: http, perMessageDeflate: false, clientTracking: false });

server.on('connection', (socket) => {
  socket.on('message', (data) => {
    const frame = JSON.parse(data.toString());
    if (frame.type === 'heartbeat') socket.send(JSON.stringify({ type: 'heartbeat', sequence: frame.sequence }));
    else if (frame.type === 'hello') socket.send(WELCOME);
  });
  socket.on('error', () => undefined);
});

answerQuestions({
  ...useAnswers,
  listen: () =>
    new Promise((resolve) =>
      http.listen({ port: 0, host: '127.0.0.1', backlog: 4096 }, () =>
        resolve({ url: `http://127.0.0.1:${(http.address() as AddressInfo).port}` }),
      ),
    ),
});
