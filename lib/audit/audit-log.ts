/**
 * Who changed what, kept for every request that changes something. Called by the listener: `begin` before the change (and
 * the change waits for its commit: with the database away there is none), `end` with its outcome, `refuse` for what was
 * turned away before it began.
 *
 *     (turned away) ──refuse──▶ written with its outcome
 *     (let in) ──begin──▶ written, without outcome ──end──▶ outcome written, within a second
 *                 │                                  ╱
 *                 └─no answer──▶ perhaps written ──refuse
 *                                        └──the instance dies──▶ stays without: whether it happened is to be looked up
 */
import { sourceOf } from '../access/networks.ts';
import { SourceBuckets } from '../access/source-limits.ts';
import { DatabaseUnavailableError, messageOf } from '../errors.ts';
import type { Logger } from '../log.ts';
import { Batcher } from '../moray/batcher.ts';
import type { Queryable } from '../moray/database.ts';
import type { Clock, Timer } from '../ports/clock.ts';
import type { Random } from '../ports/random.ts';
import {
  type AuditEnd,
  type AuditFilter,
  type AuditOutcome,
  type AuditRecord,
  type AuditRefusal,
  type AuditStart,
  insertRefusals,
  insertStarts,
  listAudit,
  recordEnds,
} from './audit-store.ts';

export interface AuditLogDeps {
  database: Queryable;
  cnapiUuid: string;
  clock: Clock;
  random: Random;
  log: Logger;
}

/** What the listener knows when it begins; `key` from `newKey`. */
export type AuditSubject = Omit<AuditStart, 'instance'>;

const FLUSH_MS = 200;
const MAX_BATCH = 500;
/** Outcomes, and as many refusals, that wait for the database. */
const MAX_WAITING = 20_000;
/** Records that one source without a good token may make of being refused; the rest is counted. */
const STRANGERS = { perSecond: 1 / 6, burst: 60 };

export class AuditLog {
  readonly #deps: AuditLogDeps;
  readonly #starting: Batcher<AuditStart, true>;
  readonly #ends: AuditEnd[] = [];
  readonly #refused: AuditRefusal[] = [];
  readonly #strangers = new SourceBuckets(STRANGERS);
  #dropped = 0;
  #unkept = 0;
  #timer: Timer | undefined;
  #writing: Promise<void> | undefined;
  #isFailing = false;

  constructor(deps: AuditLogDeps) {
    this.#deps = deps;
    this.#starting = new Batcher({
      clock: deps.clock,
      keyOf: ({ key }) => key,
      ask: async (starts) => {
        await insertStarts(deps.database, starts);
        return new Map(starts.map(({ key }) => [key, true]));
      },
      maxBatch: MAX_BATCH,
      gapMs: 0,
    });
  }

  /** Outcomes and refusals that were let go, because the database was away for too long. */
  get dropped(): number {
    return this.#dropped;
  }

  /** Refusals of strangers who were refused too often to keep a record of each. */
  get unkept(): number {
    return this.#unkept;
  }

  start(): void {
    this.#timer = this.#deps.clock.every(FLUSH_MS, () => this.#flushSoon());
  }

  /** What waits is written, if the database answers. */
  async stop(): Promise<void> {
    this.#timer?.cancel();
    await this.#writing;
    await this.#flush();
  }

  newKey(): string {
    return this.#deps.random.uuid();
  }

  /** Resolves once the record is committed. @throws DatabaseUnavailableError; it may be there all the same: tell `refuse` so */
  async begin(subject: AuditSubject): Promise<void> {
    await this.#starting.ask(this.#startOf(subject));
  }

  end({ requestId, key }: AuditSubject, outcome: AuditOutcome): void {
    if (this.#hasRoom(this.#ends)) this.#ends.push({ requestId, key, ...outcome });
  }

  /** `mayHaveBegun`: its `begin` failed, which says nothing of its record. */
  refuse(subject: AuditSubject, outcome: AuditOutcome, { mayHaveBegun = false } = {}): void {
    const isStranger = subject.tokenUuid === undefined && !mayHaveBegun;
    if (isStranger && this.#strangers.take(sourceOf(subject.source), this.#deps.clock.now()) > 0) this.#unkept += 1;
    else if (this.#hasRoom(this.#refused)) this.#refused.push({ start: this.#startOf(subject), outcome });
  }

  list(filter: AuditFilter): Promise<AuditRecord[]> {
    return listAudit(this.#deps.database, filter);
  }

  #startOf(subject: AuditSubject): AuditStart {
    return { ...subject, instance: this.#deps.cnapiUuid };
  }

  #hasRoom(waiting: readonly unknown[]): boolean {
    if (waiting.length < MAX_WAITING) return true;
    this.#dropped += 1;
    return false;
  }

  #flushSoon(): void {
    this.#writing ??= this.#flush().finally(() => {
      this.#writing = undefined;
    });
  }

  /** What the database is away for stays, in order, for the next time. */
  async #flush(): Promise<void> {
    const { database, log } = this.#deps;
    try {
      // Each outcome before any refusal: those are anybody's to make.
      do {
        while (this.#ends.length > 0) await this.#taken(this.#ends, (batch) => recordEnds(database, batch));
        if (this.#refused.length > 0) await this.#taken(this.#refused, (batch) => insertRefusals(database, batch));
      } while (this.#ends.length > 0 || this.#refused.length > 0);
      this.#isFailing = false;
    } catch (error) {
      if (!this.#isFailing) log.warn({ reason: messageOf(error) }, 'audit: outcomes wait for the database');
      this.#isFailing = true;
    }
  }

  /** Writes the first ones together; if the database refuses them, one by one, and lets go of what it refuses by itself. */
  async #taken<Item>(waiting: Item[], write: (batch: readonly Item[]) => Promise<void>): Promise<void> {
    const batch = waiting.slice(0, MAX_BATCH);
    try {
      await write(batch);
      waiting.splice(0, batch.length);
    } catch (error) {
      if (error instanceof DatabaseUnavailableError) throw error;
      for (const item of batch) {
        await this.#alone(item, write);
        waiting.shift();
      }
    }
  }

  async #alone<Item>(item: Item, write: (batch: readonly Item[]) => Promise<void>): Promise<void> {
    try {
      await write([item]);
    } catch (error) {
      if (error instanceof DatabaseUnavailableError) throw error;
      this.#dropped += 1;
      this.#deps.log.error({ err: error }, 'audit: the database refuses a record');
    }
  }
}
