/** Clients of socket.io, by WebSocket from the beginning. The server pings; a pong is a heartbeat. */
import { io } from 'socket.io-client';
import { serveClients } from './clients.ts';

serveClients({
  connect: (url, id, events) =>
    new Promise((resolve, reject) => {
      const options = { transports: ['websocket'], forceNew: true, reconnection: false, auth: { id } };
      const socket = io(url, options);
      socket.once('connect', () => resolve(undefined));
      socket.once('connect_error', reject);
      socket.once('disconnect', events.lost);
      socket.io.on('ping', events.beat);
    }),
  // Another of the servers observes.
  observe: async () => undefined,
});
