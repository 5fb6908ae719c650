/**
 * A token bucket, kept as one time (GCRA): when all that was taken is paid for at the steady rate.
 * Once that time has passed, the whole burst is available. Requests, log lines and bytes are limited
 * with it. Pure: the time is passed with each call, in milliseconds of one monotonic clock.
 */
import { BoundedMap } from './bounded-map.ts';

export interface Rate {
  perSecond: number;
  /** How much may be taken at once. */
  burst: number;
}

/** Sums of fractions may miss a whole millisecond by this much. */
const ROUNDING_MS = 0.001;
const MAX_KEYS = 50_000;

export class RateLimiter {
  readonly #rate: Rate;
  #paidAt = Number.NEGATIVE_INFINITY;

  constructor(rate: Rate) {
    this.#rate = rate;
  }

  /** Takes `cost` if that much is left, and returns 0; else returns in how many ms it will be. */
  take(now: number, cost = 1): number {
    const waitMs = this.waitMs(now, cost);
    if (waitMs === 0) this.charge(cost, now);
    return waitMs;
  }

  /** Takes what is left of `cost`; returns how much. */
  takePart(cost: number, now: number): number {
    const part = Math.min(cost, Math.max(0, this.left(now)));
    this.charge(part, now);
    return part;
  }

  /** Takes `cost` although it may exceed what is left; returns for how many ms nothing is left. */
  charge(cost: number, now: number): number {
    this.#paidAt = Math.max(this.#paidAt, now) + this.#msFor(cost);
    return this.waitMs(now);
  }

  giveBack(cost = 1): void {
    this.#paidAt -= this.#msFor(cost);
  }

  /** In how many ms `cost` is left; 0: now. */
  waitMs(now: number, cost = 0): number {
    return Math.max(0, Math.ceil(this.debtMs(now) - this.#msFor(this.#rate.burst - cost) - ROUNDING_MS));
  }

  /** Negative after `charge` took more than was left. */
  left(now: number): number {
    return this.#rate.burst - (this.debtMs(now) * this.#rate.perSecond) / 1000;
  }

  /** When the whole burst will be available again; 0: it is, and a new limiter would be the same. */
  debtMs(now: number): number {
    return Math.max(0, this.#paidAt - now);
  }

  #msFor(cost: number): number {
    return (cost * 1000) / this.#rate.perSecond;
  }
}

/** A limiter for each address, token or other key. With too many, the least recently used is dropped. */
export class RateLimiters {
  readonly #rate: Rate;
  readonly #limiters = new BoundedMap<string, RateLimiter>(MAX_KEYS);

  constructor(rate: Rate) {
    this.#rate = rate;
  }

  /** The configuration's 0 stands for no limit: undefined. */
  static ifLimited(rate: Rate): RateLimiters | undefined {
    return rate.perSecond === 0 ? undefined : new RateLimiters(rate);
  }

  of(key: string): RateLimiter {
    const limiter = this.#limiters.get(key) ?? new RateLimiter(this.#rate);
    this.#limiters.set(key, limiter);
    return limiter;
  }
}
