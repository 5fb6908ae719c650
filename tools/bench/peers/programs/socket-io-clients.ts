/** Clients of socket.io, by WebSocket from the beginning; they come again when they are lost. The server pings; a pong is a heartbeat. */
import { io } from 'socket.io-client';
import { serveClients } from './clients.ts';

serveClients({
  connect: (url, id, events) =>
    new Promise((resolve) => {
      const socket = io(url, { transports: ['websocket'], forceNew: true, auth: { id } });
      socket.once('connect', () => resolve(undefined));
      socket.on('disconnect', events.lost);
      socket.io.on('ping', events.beat);
    }),
  // Another of the servers observes.
  observe: async () => undefined,
});
