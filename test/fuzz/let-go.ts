import type { Socket } from 'node:net';

/**
 * Ends a connection at once with a reset, which leaves nothing behind in the system, unless it has
 * ended orderly. Node cannot reset a socket that it is about to shut down, and would keep it
 * forever.
 */
export function letGo(socket: Socket): void {
  if (socket.writableEnded || socket.connecting) socket.destroy();
  else socket.resetAndDestroy();
}
