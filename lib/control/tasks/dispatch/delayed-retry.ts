/**
 * Servers to claim for again after a short pause, because a row was locked or a limit was reached.
 * At the end of a pause, each server that was added during it is claimed for once. Used by both
 * dispatches.
 */
import type { Clock, Timer } from '../../../platform/clock.ts';

/** A row is usually locked for some milliseconds only. */
const PAUSE_MS = 50;

export class DelayedRetry {
  readonly #clock: Clock;
  readonly #claimFor: (serverUuid: string) => void;
  readonly #servers = new Set<string>();
  #pause: Timer | undefined;

  constructor(clock: Clock, claimFor: (serverUuid: string) => void) {
    this.#clock = clock;
    this.#claimFor = claimFor;
  }

  add(servers: readonly string[]): void {
    for (const serverUuid of servers) this.#servers.add(serverUuid);
    if (this.#servers.size > 0) this.#pause ??= this.#clock.after(PAUSE_MS, () => this.#end());
  }

  stop(): void {
    this.#pause?.cancel();
  }

  #end(): void {
    this.#pause = undefined;
    const servers = [...this.#servers];
    this.#servers.clear();
    for (const serverUuid of servers) this.#claimFor(serverUuid);
  }
}
