/**
 * The connections of the agent's HTTP port whose caller is not known yet. Their number is limited,
 * for each address (with IPv6: each /64) and in all; a new connection closes the oldest one. An
 * allowed caller sends its request right after it connects, so it is served even if others open
 * many connections. Owned by the port.
 */
import type { Socket } from 'node:net';
import { KeyedCounts } from '../../platform/limiting/keyed-counts.ts';
import { normalizeAddress, sourceOf } from '../../platform/network/networks.ts';
import type { Clock, Timer } from '../../platform/time/clock.ts';

const MAX_UNKNOWN = 200;
const MAX_UNKNOWN_PER_SOURCE = 50;
/** Limits the time from the connection to the head of a request that is admitted. */
export const HEAD_WITHIN_MS = 5_000;

export class UnauthenticatedConnections {
  readonly #clock: Clock;
  /** The oldest comes first. */
  readonly #unknown = new Map<Socket, { source: string; timer: Timer }>();
  readonly #counts = new KeyedCounts();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  connected(socket: Socket): void {
    const source = sourceOf(normalizeAddress(socket.remoteAddress ?? ''));
    const timer = this.#clock.after(HEAD_WITHIN_MS, () => this.#end(socket));
    this.#unknown.set(socket, { source, timer });
    const count = this.#counts.add(source);
    socket.once('close', () => this.admit(socket));
    if (count > MAX_UNKNOWN_PER_SOURCE) this.#endOldest(source);
    else if (this.#unknown.size > MAX_UNKNOWN) this.#endOldest();
  }

  /** Forgets a connection: its caller may use the port, or it is closed. */
  admit(socket: Socket): void {
    const one = this.#unknown.get(socket);
    if (one === undefined) return;
    one.timer.cancel();
    this.#unknown.delete(socket);
    this.#counts.add(one.source, -1);
  }

  #endOldest(source?: string): void {
    for (const [socket, one] of this.#unknown) {
      if (source !== undefined && one.source !== source) continue;
      this.#end(socket);
      return;
    }
  }

  #end(socket: Socket): void {
    this.admit(socket);
    socket.destroy();
  }
}
