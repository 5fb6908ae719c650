/**
 * Clients of socket.io that use WebSocket from the beginning and reconnect after a loss. The server
 * pings; a pong is a heartbeat.
 */
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
  // The other server observes.
  observe: async () => undefined,
});
