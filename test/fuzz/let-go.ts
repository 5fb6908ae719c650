import type { Socket } from 'node:net';

/**
 * Ends a connection for good: by a reset, which leaves nothing behind in the system, unless it has been ended in good order. Node
 * cannot reset what it is about to shut down, and would keep the socket for ever.
 */
export function letGo(socket: Socket): void {
  if (socket.writableEnded || socket.connecting) socket.destroy();
  else socket.resetAndDestroy();
}
