/**
 * Limits the long-lasting requests of one caller on this instance: event streams and waits.
 * `callerKey` (lib/control/access/token.ts) decides who counts as one caller. Owned by the
 * listener; asked before the route's handler runs.
 */

import { CnapiError } from '../../../platform/errors.ts';
import { KeyedCounts } from '../../../platform/limiting/keyed-counts.ts';
import type { LongRequestKind } from '../../../protocol/api/contract/contract.ts';

export interface CallerQuotaOptions {
  /** This quota and those below: 0 means no limit. */
  eventStreamsPerCaller: number;
  waitsPerCaller: number;
}

/** 429: this caller has reached its limit of open requests of one kind. */
class CallerQuotaError extends CnapiError {
  constructor(what: string, limit: number, key: string) {
    const message = `This caller already has ${limit} ${what} on this instance; end one, or ask another instance (${key} in the configuration)`;
    super('TooManyRequests', 429, message, { retryAfterSeconds: 1 });
  }
}

const KEYS = {
  stream: { key: 'eventStreamsPerCaller', what: 'streams of events' },
  wait: { key: 'waitsPerCaller', what: 'waits' },
} as const;

export class CallerQuotas {
  readonly #options: CallerQuotaOptions;
  readonly #counts: Readonly<Record<LongRequestKind, KeyedCounts>> = {
    stream: new KeyedCounts(),
    wait: new KeyedCounts(),
  };
  #refused = 0;

  constructor(options: CallerQuotaOptions) {
    this.#options = options;
  }

  /** Requests refused so far because their caller had too many open. */
  get refused(): number {
    return this.#refused;
  }

  /** Counts one more until the returned function is called. @throws CallerQuotaError */
  take(kind: LongRequestKind, caller: string | undefined): () => void {
    if (caller === undefined) return () => undefined;
    const { key, what } = KEYS[kind];
    const limit = this.#options[key];
    const counts = this.#counts[kind];
    if (limit > 0 && counts.of(caller) >= limit) {
      this.#refused += 1;
      throw new CallerQuotaError(what, limit, key);
    }
    counts.add(caller);
    return () => void counts.add(caller, -1);
  }
}
