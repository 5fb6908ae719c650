/**
 * Logs changes of servers' status, each on a line of its own while they are few. When a whole zone
 * loses its servers together, the rest of a batch is one line with the number of servers for each
 * reason; the status history has every server. A token bucket.
 */
import type { LogFields, Logger } from '../../../platform/log.ts';
import type { Clock } from '../../../platform/time/clock.ts';

type Transition = LogFields & { server_uuid: string; reason: string | undefined };

const BURST_LINES = 200;
const LINES_PER_SECOND = 20;

export class TransitionLog {
  readonly #log: Logger;
  readonly #clock: Clock;
  #left = BURST_LINES;
  #countedAt = Number.NEGATIVE_INFINITY;

  constructor({ log, clock }: { log: Logger; clock: Clock }) {
    this.#log = log;
    this.#clock = clock;
  }

  /** @param message such as `server: running -> unknown` */
  write(transitions: readonly Transition[], message: string): void {
    const own = transitions.slice(0, this.#take(transitions.length));
    for (const fields of own) this.#log.info(fields, message);
    const rest = transitions.slice(own.length);
    if (rest.length === 0) return;
    const byReason = Map.groupBy(rest, ({ reason }) => reason ?? 'unknown');
    const reasons = Object.fromEntries([...byReason].map(([reason, some]) => [reason, some.length]));
    this.#log.info({ servers: rest.length, reasons }, `${message}, without a line for each server`);
  }

  #take(wanted: number): number {
    const now = this.#clock.now();
    const refill = ((now - this.#countedAt) / 1000) * LINES_PER_SECOND;
    this.#left = Math.min(BURST_LINES, this.#left + refill);
    this.#countedAt = now;
    const taken = Math.min(wanted, Math.floor(this.#left));
    this.#left -= taken;
    return taken;
  }
}
