/**
 * What agents have not read yet, over all connections: frames wait in this instance's memory. One
 * connection has its own limit (`connection.ts`); many that read slowly, each within that limit,
 * would still use all memory. While the sum is above its bound, the tasks that this instance claims
 * and sends wait (`session-dispatch.ts`). Connections of which nothing leaves are then ended, those
 * with most unsent first: agents that do not read must not keep the others waiting.
 */
import type { Clock } from '../../platform/time/clock.ts';
import type { HealthyTimer } from '../../platform/time/healthy-timer.ts';

interface UnsentConnection {
  readonly isOpen: boolean;
  readonly unsentBytes: number;
  endSlowReader(): void;
}

interface UnsentFramesDeps {
  clock: Pick<Clock, 'now'>;
  /** Measures how long a connection has sent nothing. */
  healthyTimer: Pick<HealthyTimer, 'after'>;
}

/** The present tasks in flight and two full connections. */
export const MAX_UNSENT_BYTES = 64 * 1024 * 1024;
const STANDS_STILL_MS = 5_000;
/** The sum may be this old, unless something was sent since. */
const FRESH_MS = 20;

export class UnsentFrames {
  readonly #deps: UnsentFramesDeps;
  readonly #connections = new Set<UnsentConnection>();
  #bytes = 0;
  #countedAt = Number.NEGATIVE_INFINITY;
  /** The unsent bytes of each connection when the sum was last found above its bound. */
  #before: Map<UnsentConnection, number> | undefined;

  constructor(deps: UnsentFramesDeps) {
    this.#deps = deps;
  }

  /** A frame was given to this connection. */
  sent(connection: UnsentConnection): void {
    if (connection.unsentBytes === 0) return;
    this.#connections.add(connection);
    this.#countedAt = Number.NEGATIVE_INFINITY;
  }

  get bytes(): number {
    const now = this.#deps.clock.now();
    if (now - this.#countedAt >= FRESH_MS) {
      this.#countedAt = now;
      this.#bytes = this.#count();
    }
    return this.#bytes;
  }

  /** While this is so, what can wait is not sent. */
  get isFull(): boolean {
    if (this.bytes <= MAX_UNSENT_BYTES) return false;
    if (this.#before === undefined) this.#watch();
    return true;
  }

  /** While this is so, questions of push jobs are not sent: they leave the other half to tasks. */
  get isHalfFull(): boolean {
    return this.bytes > MAX_UNSENT_BYTES / 2;
  }

  #count(): number {
    let bytes = 0;
    for (const connection of this.#connections) {
      const { isOpen, unsentBytes } = connection;
      if (isOpen && unsentBytes > 0) bytes += unsentBytes;
      else this.#connections.delete(connection);
    }
    return bytes;
  }

  #watch(): void {
    const before = new Map([...this.#connections].map((connection) => [connection, connection.unsentBytes]));
    this.#before = before;
    this.#deps.healthyTimer.after(STANDS_STILL_MS, () => {
      this.#before = undefined;
      this.#endStalledConnections(before);
      if (this.#count() > MAX_UNSENT_BYTES) this.#watch();
    });
  }

  #endStalledConnections(before: ReadonlyMap<UnsentConnection, number>): void {
    let bytes = this.#count();
    const still = [...this.#connections]
      .filter((one) => one.unsentBytes >= (before.get(one) ?? Number.POSITIVE_INFINITY))
      .sort((one, other) => other.unsentBytes - one.unsentBytes);
    for (const connection of still) {
      if (bytes <= MAX_UNSENT_BYTES) return;
      bytes -= connection.unsentBytes;
      connection.endSlowReader();
    }
  }
}
