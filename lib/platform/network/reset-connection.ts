/** A TCP connection that breaks must not look to its peer like one that has ended. */
import type { Socket } from 'node:net';

/** Destroys it with a reset, where it is one of TCP that is open. */
export function resetConnection(socket: Socket): void {
  // What `resetAndDestroy` does, which ends the output first: its peer would read that end.
  if (!socket.connecting) (socket as Socket & { resetAndClosing?: boolean }).resetAndClosing = true;
  socket.destroy();
}
