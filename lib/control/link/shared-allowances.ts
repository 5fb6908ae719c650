/**
 * What the connections of an instance may cost together, and those of one token that is valid for
 * several servers. Above that rate the price of input rises for all of them. Each connection has a
 * burst of its own (`allowance.ts`), so the higher price pauses first those that send most, and an
 * agent that sends little does not notice it. Time is passed with each call; owned by the link server.
 */
import { BYTES_PER_MS } from '../../protocol/allowance.ts';
import type { SharedCost } from '../../protocol/read-limiter.ts';

/** Costs as `allowance.ts` counts them. A live agent that only sends heartbeats costs 12 KiB/s. */
const EACH_BYTES_PER_MS = 32;
/** The rates in addition to that. */
const INSTANCE_BYTES_PER_MS = 2 * BYTES_PER_MS;
const TOKEN_BYTES_PER_MS = BYTES_PER_MS;
/** The price rises by one for each such period that it takes to pay for what was sent so far. */
const PRICE_MS = 1000;
const MAX_PRICE = 32;

export class SharedAllowance implements SharedCost {
  readonly #bytesPerMs: number;
  #members = 0;
  #paidAt = 0;

  constructor(bytesPerMs: number) {
    this.#bytesPerMs = bytesPerMs;
  }

  join(): void {
    this.#members += 1;
  }

  leave(): void {
    this.#members -= 1;
  }

  charge(cost: number, now: number): number {
    const rate = this.#bytesPerMs + this.#members * EACH_BYTES_PER_MS;
    this.#paidAt = Math.min(Math.max(this.#paidAt, now) + cost / rate, now + MAX_PRICE * PRICE_MS);
    return this.price(now);
  }

  price(now: number): number {
    return Math.max(1, (this.#paidAt - now) / PRICE_MS);
  }

  /** It has no member, and a new one would have the same effect. */
  isUnused(now: number): boolean {
    return this.#members === 0 && this.#paidAt <= now;
  }
}

export class SharedAllowances {
  readonly #instance = new SharedAllowance(INSTANCE_BYTES_PER_MS);
  /** Of connections with a token for one server, or without a token. */
  readonly #common = [this.#instance] as const;
  readonly #ofTokens = new Map<string, readonly SharedAllowance[]>();

  /** By how much the cost of all input is multiplied now. */
  price(now: number): number {
    return this.#instance.price(now);
  }

  /** Counts a connection until `leave` with the returned value. `token`: valid for several servers. */
  join(token: string | undefined, now: number): readonly SharedAllowance[] {
    const shared = token === undefined ? this.#common : this.#ofToken(token, now);
    for (const one of shared) one.join();
    return shared;
  }

  leave(shared: readonly SharedAllowance[]): void {
    for (const one of shared) one.leave();
  }

  #ofToken(token: string, now: number): readonly SharedAllowance[] {
    const known = this.#ofTokens.get(token);
    if (known !== undefined) return known;
    for (const [uuid, [, own]] of this.#ofTokens) if (own?.isUnused(now)) this.#ofTokens.delete(uuid);
    const shared = [this.#instance, new SharedAllowance(TOKEN_BYTES_PER_MS)];
    this.#ofTokens.set(token, shared);
    return shared;
  }
}
