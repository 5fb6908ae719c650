/**
 * Limits warnings that the other end of a connection can cause at will to a few per minute. More
 * would add no information and would fill the disk.
 */

import type { Clock } from './clock.ts';
import type { LogFields, Logger } from './log.ts';

const MAX_A_PERIOD = 10;
const PERIOD_MS = 60_000;

export class LogLimiter {
  readonly #deps: { log: Logger; clock: Clock };
  #periodEndsAt = 0;
  #count = 0;

  constructor(deps: { log: Logger; clock: Clock }) {
    this.#deps = deps;
  }

  /** The first line of a period says how many warnings of the previous one were dropped. */
  warn(fields: LogFields, message: string): void {
    const now = this.#deps.clock.now();
    const unlogged = Math.max(0, this.#count - MAX_A_PERIOD);
    if (now >= this.#periodEndsAt) {
      this.#periodEndsAt = now + PERIOD_MS;
      this.#count = 0;
    }
    this.#count += 1;
    if (this.#count > MAX_A_PERIOD) return;
    this.#deps.log.warn(this.#count === 1 && unlogged > 0 ? { ...fields, unlogged } : fields, message);
  }
}
