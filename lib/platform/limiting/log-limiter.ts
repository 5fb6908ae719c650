/**
 * Limits warnings that the other end of a connection can cause at will to a few per minute. More
 * would add no information and would fill the disk.
 */

import type { LogFields, Logger } from '../log.ts';
import type { Clock } from '../time/clock.ts';
import { RateLimit, RateLimiter } from './rate-limiter.ts';

const TEN_A_MINUTE = new RateLimit({ perSecond: 10 / 60, burst: 10 });
export const ONE_A_MINUTE = new RateLimit({ perSecond: 1 / 60, burst: 1 });

export class LogLimiter {
  readonly #deps: { log: Logger; clock: Clock };
  readonly #lines: RateLimiter;
  #unlogged = 0;

  constructor(deps: { log: Logger; clock: Clock }, rate = TEN_A_MINUTE) {
    this.#deps = deps;
    this.#lines = new RateLimiter(rate);
  }

  /** A line says how many warnings before it were dropped. */
  warn(fields: LogFields, message: string): void {
    if (this.#lines.take(this.#deps.clock.now()) > 0) {
      this.#unlogged += 1;
      return;
    }
    this.#deps.log.warn(this.#unlogged > 0 ? { ...fields, unlogged: this.#unlogged } : fields, message);
    this.#unlogged = 0;
  }
}
