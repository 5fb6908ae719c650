/**
 * A rate limit for the request bodies of one caller, a token bucket. A body costs its bytes,
 * `PIECE_BYTES` for each piece in which it comes, and `VALUE_BYTES` for each JSON value, like a
 * frame of the agent link (`lib/protocol/link/link-quota.ts`). The caller is an agent's token for
 * one server, the user or client who signed the body, or an address. A request is refused while
 * earlier bodies exceed the burst. Small bodies are free, so heartbeats of a limited caller still
 * pass. A body that is refused for another reason costs the same. Owned by the listener; asked
 * before a body is read and before it is parsed.
 */
import { CnapiError } from '../../../platform/errors.ts';
import { type RateLimiter, RateLimiters } from '../../../platform/limiting/rate-limiter.ts';
import { normalizeAddress, sourceOf } from '../../../platform/network/networks.ts';
import { LINK_RATE, VALUE_BYTES } from '../../../protocol/link/link-quota.ts';
import type { Actor } from '../../access/token.ts';

/** 429: the caller's request bodies exceed its rate limit. */
class BodyCostError extends CnapiError {
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

/**
 * The average cost of a request, by which the rate of an address, or of a signer, is limited. With
 * the default rate of requests this is the rate of a link.
 */
const BYTES_PER_REQUEST = 32 * 1024;
/** A body of this size, in so few pieces, is free, unless it is compressed. */
export const FREE_BODY_BYTES = 1024;
export const FREE_BODY_PIECES = 16;
/**
 * The cost of a piece in addition to its bytes. Measured on Node 24: to receive a chunk of one byte
 * takes 2 µs.
 */
export const PIECE_BYTES = 1024;

export class BodyCosts {
  readonly #ofTokens = new RateLimiters(LINK_RATE);
  /** Callers who sign their requests, and addresses. */
  readonly #ofOthers: RateLimiters | undefined;
  #refused = 0;

  /** `requestsPerSecond`: 0: only tokens have a limit. */
  constructor({ requestsPerSecond }: { requestsPerSecond: number }) {
    const perSecond = requestsPerSecond * BYTES_PER_REQUEST;
    this.#ofOthers = RateLimiters.ifLimited({
      perSecond,
      burst: (LINK_RATE.burst * perSecond) / LINK_RATE.perSecond,
    });
  }

  get refused(): number {
    return this.#refused;
  }

  /** Refuses a caller whose earlier bodies still use up its quota. @throws BodyCostError */
  check(caller: Caller, now: number): void {
    const waitMs = this.#limiterOf(caller)?.waitMs(now) ?? 0;
    if (waitMs === 0) return;
    this.#refused += 1;
    throw new BodyCostError(Math.ceil(waitMs / 1000));
  }

  /** Whether the bucket of the caller is empty after its earlier bodies. */
  isOver(caller: Caller, now: number): boolean {
    return (this.#limiterOf(caller)?.waitMs(now) ?? 0) > 0;
  }

  /** Part of the cost of one body, which may be refused for another reason. */
  charge(caller: Caller, size: BodySize, now: number): void {
    this.#limiterOf(caller)?.charge(costOf(size), now);
  }

  /** Charges to `to` what was charged to `from`. */
  move(size: BodySize, { from, to }: { from: Caller; to: Caller }, now: number): void {
    this.#limiterOf(from)?.giveBack(costOf(size));
    this.charge(to, size, now);
  }

  /** Identifies the caller that is limited. */
  keyOf({ actor, address }: Caller): string {
    return tokenOf(actor) ?? actor?.principal?.uuid ?? sourceOf(normalizeAddress(address));
  }

  #limiterOf(caller: Caller): RateLimiter | undefined {
    const limiters = tokenOf(caller.actor) === undefined ? this.#ofOthers : this.#ofTokens;
    return limiters?.of(this.keyOf(caller));
  }
}

const costOf = ({ bytes, values }: BodySize): number => bytes + values * VALUE_BYTES;

/** Undefined for a token for several servers: its agents are limited by their addresses. */
function tokenOf(actor: Actor | undefined): string | undefined {
  return actor?.serverUuid === undefined ? undefined : actor.tokenUuid;
}
