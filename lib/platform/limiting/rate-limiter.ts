/**
 * A token bucket, kept as one time (GCRA): when it is full again at the steady rate. Once that time
 * has passed, the whole burst is available. Requests, log lines and bytes are limited with it.
 * Pure: the time is passed with each call, in milliseconds of one monotonic clock.
 */
import { BoundedMap } from './bounded-map.ts';

/** Sums of fractions may miss a whole millisecond by this much. */
const ROUNDING_MS = 0.001;
const MAX_KEYS = 50_000;

/**
 * The rate that a limiter allows. Code with very many limiters can keep only the time of each, and
 * use these functions.
 */
export class RateLimit {
  readonly perSecond: number;
  /** How much may be taken in one go. */
  readonly burst: number;

  constructor({ perSecond, burst }: { perSecond: number; burst: number }) {
    this.perSecond = perSecond;
    this.burst = burst;
  }

  /** When the bucket is full again after this `cost`. */
  charge(cost: number, fullAt: number, now: number): number {
    return Math.max(fullAt, now) + (cost * 1000) / this.perSecond;
  }

  /** Negative when more was charged than was left. */
  left(fullAt: number, now: number): number {
    return this.burst - (Math.max(0, fullAt - now) * this.perSecond) / 1000;
  }

  /** Milliseconds until `cost` is available; 0: now. */
  waitMs(cost: number, fullAt: number, now: number): number {
    const missing = cost - this.left(fullAt, now);
    return Math.max(0, Math.ceil((missing * 1000) / this.perSecond - ROUNDING_MS));
  }
}

export class RateLimiter {
  readonly #limit: RateLimit;
  #fullAt = Number.NEGATIVE_INFINITY;

  constructor(limit: RateLimit) {
    this.#limit = limit;
  }

  /** Takes one if there is one left, and returns 0; else returns in how many ms there will be. */
  take(now: number): number {
    const waitMs = this.#limit.waitMs(1, this.#fullAt, now);
    if (waitMs === 0) this.charge(1, now);
    return waitMs;
  }

  /** Gives back what was taken or charged. */
  giveBack(cost = 1): void {
    this.#fullAt -= (cost * 1000) / this.#limit.perSecond;
  }

  /**
   * Takes `cost` although it may exceed what is left. Returns for how many ms nothing more may be
   * taken.
   */
  charge(cost: number, now: number): number {
    this.#fullAt = this.#limit.charge(cost, this.#fullAt, now);
    return this.waitMs(now);
  }

  waitMs(now: number): number {
    return this.#limit.waitMs(0, this.#fullAt, now);
  }
}

/**
 * One limiter for each address, token or other key. Above the bound, the least recently used is
 * dropped.
 */
export class RateLimiters {
  readonly #limit: RateLimit;
  readonly #limiters = new BoundedMap<string, RateLimiter>(MAX_KEYS);

  constructor(limit: RateLimit) {
    this.#limit = limit;
  }

  /** Returns undefined for a rate of 0, which means "no limit" in the configuration. */
  static ifLimited(limit: { perSecond: number; burst: number }): RateLimiters | undefined {
    return limit.perSecond === 0 ? undefined : new RateLimiters(new RateLimit(limit));
  }

  of(key: string): RateLimiter {
    const limiter = this.#limiters.get(key) ?? new RateLimiter(this.#limit);
    this.#limiters.set(key, limiter);
    return limiter;
  }
}
