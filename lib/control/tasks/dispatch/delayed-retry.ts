/**
 * Servers to claim for again after a short pause, because a row was locked or a limit was reached.
 * While a server's row stays locked, its pause doubles. Used by both dispatches.
 */
import type { Clock, Timer } from '../../../platform/clock.ts';

/** A row is usually locked for some milliseconds only. */
const PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 3_200;

export class DelayedRetry {
  readonly #clock: Clock;
  readonly #claimFor: (serverUuid: string) => void;
  /** The next pause of each server that was added and not forgotten. */
  readonly #pauses = new Map<string, number>();
  /** Servers in a pause, by its length: those of one length end together. */
  readonly #waiting = new Map<number, { servers: Set<string>; timer: Timer }>();

  constructor(clock: Clock, claimFor: (serverUuid: string) => void) {
    this.#clock = clock;
    this.#claimFor = claimFor;
  }

  add(servers: readonly string[]): void {
    for (const serverUuid of new Set(servers)) {
      const pauseMs = this.#pauses.get(serverUuid) ?? PAUSE_MS;
      this.#pauses.set(serverUuid, Math.min(2 * pauseMs, LONGEST_PAUSE_MS));
      this.#paused(pauseMs).add(serverUuid);
    }
  }

  /** Their claims are no longer held up: their next pause is short. */
  forget(servers: Iterable<string>): void {
    for (const serverUuid of servers) this.#pauses.delete(serverUuid);
  }

  stop(): void {
    for (const { timer } of this.#waiting.values()) timer.cancel();
  }

  #paused(pauseMs: number): Set<string> {
    const waiting = this.#waiting.get(pauseMs);
    if (waiting !== undefined) return waiting.servers;
    const servers = new Set<string>();
    const timer = this.#clock.after(pauseMs, () => {
      this.#waiting.delete(pauseMs);
      for (const serverUuid of servers) this.#claimFor(serverUuid);
    });
    this.#waiting.set(pauseMs, { servers, timer });
    return servers;
  }
}
