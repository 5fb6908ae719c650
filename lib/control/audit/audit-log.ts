/**
 * A record of who changed what, for every request that changes something. Called by the listener:
 * `begin` before the change, `end` with its outcome, `refuse` for a request that was refused before
 * it began. A change that is one statement takes its record along instead (`part`): both are
 * committed together. Any other change waits until its record is committed. So nothing changes
 * without a record.
 *
 *     refused ──refuse──▶ written with its outcome
 *     admitted ──begin, or part──▶ written ──end──▶ its outcome is written, within a second
 *         │                  └──the instance dies──▶ no outcome: look up whether it happened
 *         └──begin fails, or part is refused──▶ perhaps written ──refuse──▶ written with its outcome
 */

import { RateLimit, RateLimiters } from '../../platform/limiting/rate-limiter.ts';
import type { Logger } from '../../platform/log.ts';
import { sourceOf } from '../../platform/network/networks.ts';
import { BatchQueue, type BatchQueueDeps } from '../../platform/postgres/batches/batch-queue.ts';
import { Batcher } from '../../platform/postgres/batches/batcher.ts';
import type { Queryable } from '../../platform/postgres/database.ts';
import type { Random } from '../../platform/random.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { AuditRecordPart } from '../audit-part.ts';
import {
  type AuditEnd,
  type AuditFilter,
  type AuditOutcome,
  type AuditRefusal,
  type AuditRow,
  type AuditStart,
  insertRefusals,
  insertStarts,
  listAudit,
  recordEnds,
  startPart,
} from './audit-store.ts';

interface AuditLogDeps {
  database: Queryable;
  cnapiUuid: string;
  clock: Clock;
  random: Random;
  log: Logger;
}

/** What the listener knows when the request begins; `key` comes from `newKey`. */
export interface AuditSubject extends Omit<AuditStart, 'instance'> {
  /** The user or client who signed the request. Not recorded, because `actor` names it. */
  principalUuid?: string | undefined;
}

/** One statement writes the outcomes of this time. */
const GATHER_MS = 200;
const MAX_BATCH = 500;
/** How long the outcomes of a batch may wait for one row that is locked. */
const LOCK_TIMEOUT_MS = 200;
/** Limit for outcomes, and for refusals, that wait for the database. */
const MAX_WAITING = 20_000;
/**
 * Rate of refusal records for one source of callers that are not authenticated; further refusals
 * are only counted.
 */
const UNAUTHENTICATED = new RateLimit({ perSecond: 1 / 6, burst: 60 });
/**
 * Rate of refusal records for one valid token, user or client: far more than people and their tools
 * cause.
 */
const AUTHENTICATED = new RateLimit({ perSecond: 1, burst: 600 });

export class AuditLog {
  readonly #deps: AuditLogDeps;
  readonly #starting: Batcher<AuditStart, true>;
  readonly #ends: BatchQueue<AuditEnd>;
  /** Separate from the outcomes, so those never wait for refusals, which anybody can cause. */
  readonly #refused: BatchQueue<AuditRefusal>;
  readonly #unauthenticated = new RateLimiters(UNAUTHENTICATED);
  readonly #authenticated = new RateLimiters(AUTHENTICATED);
  #dropped = 0;
  #unkept = 0;

  constructor(deps: AuditLogDeps) {
    this.#deps = deps;
    this.#starting = new Batcher({
      ...deps,
      what: 'audit of requests that begin',
      keyOf: ({ key }) => key,
      ask: async (starts, database) => {
        await insertStarts(database, starts);
        return new Map(starts.map(({ key }) => [key, true]));
      },
      maxBatch: MAX_BATCH,
      minIntervalMs: 0,
    });
    this.#ends = this.#queueOf({
      what: 'audit of outcomes',
      keyOf: ({ key }) => key,
      work: (batch, database) => recordEnds(database, batch),
    });
    this.#refused = this.#queueOf({
      what: 'audit of refusals',
      keyOf: ({ start }) => start.key,
      work: (batch, database) => insertRefusals(database, batch),
    });
  }

  /**
   * Outcomes and refusals that were dropped: the database was down too long, or it refuses them.
   */
  get dropped(): number {
    return this.#dropped;
  }

  /** Refusals without a record, because their token or their source was refused too often. */
  get unkept(): number {
    return this.#unkept;
  }

  /** Writes what is waiting, if the database answers. */
  async stop(): Promise<void> {
    await this.#ends.finish();
    await this.#refused.finish();
  }

  newKey(): string {
    return this.#deps.random.uuid();
  }

  /**
   * Resolves once the record is committed. @throws DatabaseUnavailableError; the record may exist
   * all the same, so call `refuse` with `mayHaveBegun`
   */
  async begin(subject: AuditSubject): Promise<void> {
    await this.#starting.ask(this.#startOf(subject));
  }

  /**
   * The record as a part of the statement that makes the change. If the answer to the statement is
   * lost, call `refuse` with `mayHaveBegun`.
   */
  part(subject: AuditSubject): AuditRecordPart {
    return startPart(this.#startOf(subject));
  }

  end({ requestId, key }: AuditSubject, outcome: AuditOutcome): void {
    if (this.#hasRoom(this.#ends)) this.#ends.add({ requestId, key, ...outcome }, GATHER_MS);
  }

  /**
   * `mayHaveBegun`: its record may exist, because `begin` failed, or because the statement of the
   * change refused it. Such a record gets its outcome beyond the limit too, and counts to it.
   */
  refuse(subject: AuditSubject, outcome: AuditOutcome, { mayHaveBegun = false } = {}): void {
    const isWithinLimit = this.#mayRecord(subject);
    if (!mayHaveBegun && !isWithinLimit) this.#unkept += 1;
    else if (this.#hasRoom(this.#refused)) this.#refused.add({ start: this.#startOf(subject), outcome }, GATHER_MS);
  }

  list(filter: AuditFilter): Promise<AuditRow[]> {
    return listAudit(this.#deps.database, filter);
  }

  #mayRecord({ tokenUuid, principalUuid, source }: AuditSubject): boolean {
    const caller = tokenUuid ?? principalUuid;
    const records = caller === undefined ? this.#unauthenticated.of(sourceOf(source)) : this.#authenticated.of(caller);
    return records.take(this.#deps.clock.now()) === 0;
  }

  #startOf({ principalUuid: _, ...start }: AuditSubject): AuditStart {
    return { ...start, instance: this.#deps.cnapiUuid };
  }

  #hasRoom({ size }: { size: number }): boolean {
    if (size < MAX_WAITING) return true;
    this.#dropped += 1;
    return false;
  }

  #queueOf<Item>(
    how: Pick<BatchQueueDeps<Item>, 'what' | 'keyOf'> & {
      work: (batch: readonly Item[], database: Queryable) => Promise<void>;
    },
  ): BatchQueue<Item> {
    return new BatchQueue<Item>({
      ...this.#deps,
      ...how,
      work: async (batch, database) => {
        await how.work(batch, database);
        return [];
      },
      maxBatch: MAX_BATCH,
      lockTimeoutMs: LOCK_TIMEOUT_MS,
      onRefused: (_item, error) => {
        this.#dropped += 1;
        this.#deps.log.error({ err: error }, 'audit: the database refuses a record');
        return undefined;
      },
    });
  }
}
