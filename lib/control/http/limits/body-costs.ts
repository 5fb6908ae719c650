/**
 * A rate limit for the request bodies of one caller, a token bucket. A body costs its bytes, and
 * `VALUE_BYTES` for each JSON value, like a frame of the agent link (`lib/protocol/allowance.ts`).
 * The caller is an agent's token for one server, or an address. A request is refused while earlier
 * bodies exceed the burst. Small bodies are free, so heartbeats of a limited caller still pass.
 * A body that is refused for another reason costs the same. Owned by the listener; asked before a body
 * is read and before it is parsed.
 */
import { CnapiError } from '../../../platform/errors.ts';
import { plainAddress, sourceOf } from '../../../platform/networks.ts';
import { BYTES_PER_MS, consume, pauseMsOf, VALUE_BYTES } from '../../../protocol/allowance.ts';
import type { Actor } from '../../access/token.ts';

/** 429: the caller's request bodies exceed its rate limit. */
export class BodyCostError extends CnapiError {
  constructor(retryAfterSeconds: number) {
    const message = `The request bodies exceed this caller's rate limit; retry after ${retryAfterSeconds} s`;
    super('TooManyRequests', 429, message, { retryAfterSeconds });
  }
}

interface Caller {
  actor: Actor | undefined;
  address: string;
}

export interface BodySize {
  bytes: number;
  values: number;
}

/** The mean cost of each request that an address may send. The default rate is then a link's. */
const BYTES_PER_REQUEST = 32 * 1024;
/** A body of this size is free, unless it is compressed. */
export const FREE_BODY_BYTES = 1024;
const MAX_CALLERS = 50_000;

export class BodyCosts {
  /** How many times the rate of a link an address has; 0: no limit. */
  readonly #addressRate: number;
  /** When everything is paid for. The least recently charged comes first. */
  readonly #paidAt = new Map<string, number>();
  #refused = 0;

  constructor({ requestsPerSecond }: { requestsPerSecond: number }) {
    this.#addressRate = (requestsPerSecond * BYTES_PER_REQUEST) / (1000 * BYTES_PER_MS);
  }

  get refused(): number {
    return this.#refused;
  }

  /** Whether the caller's earlier bodies are paid for. @throws BodyCostError */
  check(caller: Caller, now: number): void {
    const { key, rate } = this.#accountOf(caller);
    const pauseMs = rate === 0 ? 0 : pauseMsOf(this.#paidAt.get(key) ?? now, now);
    if (pauseMs === 0) return;
    this.#refused += 1;
    throw new BodyCostError(Math.ceil(pauseMs / 1000));
  }

  /** Part of the cost of one body, which may be refused for another reason. */
  charge(caller: Caller, { bytes, values }: BodySize, now: number): void {
    const { key, rate } = this.#accountOf(caller);
    const cost = bytes + values * VALUE_BYTES;
    if (rate > 0 && cost > 0) this.#keep(key, consume(cost / rate, this.#paidAt.get(key) ?? now, now));
  }

  /** Who is limited: a token for one server, or an address. */
  keyOf(caller: Caller): string {
    return this.#accountOf(caller).key;
  }

  #accountOf({ actor, address }: Caller): { key: string; rate: number } {
    // Agents with a token for several servers have an address each.
    if (actor?.tokenUuid !== undefined && actor.serverUuid !== undefined) return { key: actor.tokenUuid, rate: 1 };
    return { key: sourceOf(plainAddress(address)), rate: this.#addressRate };
  }

  #keep(key: string, paidAt: number): void {
    this.#paidAt.delete(key);
    this.#paidAt.set(key, paidAt);
    if (this.#paidAt.size <= MAX_CALLERS) return;
    const [oldest] = this.#paidAt.keys();
    if (oldest !== undefined) this.#paidAt.delete(oldest);
  }
}
