/**
 * Collects work of many callers into few statements, under one failure rule (law 9): slow is not
 * down, and one failure is not all. Every driver that gathers items for the database uses it, and
 * bounds them; callers that wait for an answer use it through `batcher.ts`.
 *
 *     waiting ──lane free, gap over──▶ in a statement ──▶ done
 *        ▲                                 ├─database down──▶ waiting again; everything pauses,
 *        └─────────────────────────────────┤                  100 ms doubling to 1 s
 *                                          ├─locked, slow or refused──▶ parts, down to one item
 *                                          ├─unanswered──▶ smaller batches, all of them from now on
 *                                          └─skipped by the statement: its row is locked────┐
 *     alone: locked, slow or unanswered ──▶ set aside, tried again after a pause ◀──────────┘
 *            refused ──▶ its owner decides, or set aside for up to 30 s
 *
 * After a slow batch each part (`batch-parts.ts`) has little time, so that others are done soon.
 * Items set aside have the full time. They pause for 100 ms, doubling to 1 s, or to four times what
 * a longer statement took. Unanswered: too large for the network (`pool.ts`, `batch-limit.ts`).
 *
 * Parts and items set aside share one lane with a short lock timeout, so a part may wait for a slow
 * item that is tried again. New items proceed. A key is in one statement at a time, in order.
 */
import { DatabaseBusyError, DatabaseUnavailableError, isUnanswered, messageOf } from '../../errors.ts';
import type { Logger } from '../../log.ts';
import type { Clock, Timer } from '../../time/clock.ts';
import { type Queryable, withLimits } from '../database.ts';
import { BatchLimit } from './batch-limit.ts';
import { type BatchPart, BatchParts } from './batch-parts.ts';
import { DelayedRetries, type FailedTry, MAX_PAUSE_MS, nextBackoffMs, REFUSED_PAUSE_MS } from './delayed-retries.ts';
import { TimedDatabase } from './timed-database.ts';

export interface BatchQueueDeps<Item> {
  clock: Clock;
  log: Logger;
  database: Queryable;
  /** What the items are, for the log. */
  what: string;
  keyOf: (item: Item) => string;
  /** Joins two waiting items of one key. Default: both are kept, one after the other. */
  join?: (earlier: Item, later: Item) => Item;
  /**
   * Carries out all items or none; may be called again with the same items. Or returns the items
   * that it skipped because their rows are locked, after it has done all others.
   */
  work: (items: Item[], database: Queryable) => Promise<Iterable<Item> | undefined>;
  /** Per statement: bounds its locks and its time. */
  maxBatch: number;
  /** Maximum sum of the item sizes in a batch; one item may be larger. */
  maxBatchSize?: number;
  sizeOf?: (item: Item) => number;
  /** Shared with other queues of the same work. Default: one of its own. */
  batchLimit?: BatchLimit<Item>;
  /** Concurrent statements, beside the one of parts; default 1. */
  concurrency?: number;
  /**
   * How long a lane's statement waits for a locked row before its batch is divided. Default:
   * the database's setting.
   */
  lockTimeoutMs?: number;
  /** Minimum time between the starts of two statements; default 0. */
  minIntervalMs?: number;
  /** Whether a statement may begin now; call `trigger()` after a change. Default: always. */
  mayBegin?: () => boolean;
  /** A statement ended: `size` and `setAside` count it no more. */
  onEnded?: () => void;
  /**
   * The database is down, or the statement was unanswered: it is unknown whether it was carried
   * out. Return true to drop the items. Default: they wait.
   */
  onLost?: (items: readonly Item[], error: DatabaseUnavailableError | DatabaseBusyError) => boolean;
  /**
   * The item alone is locked, slow or unanswered, or was skipped, `agedMs` after this was first
   * tried. Return true to drop it. Default: it is tried for ever.
   */
  onBusy?: (item: Item, error: DatabaseBusyError, agedMs: number) => boolean;
  /**
   * The database refuses the single item. Returns what to try later in its place, if anything.
   * Default: the same item, after pauses of up to 30 s: what is dropped may be a status change.
   */
  onRefused?: (item: Item, error: unknown) => Item | undefined;
}

/** Lock timeout of the search for the blocked item. A row in brief use is free again by then. */
const ISOLATING_LOCK_TIMEOUT_MS = 50;

export class BatchQueue<Item> {
  readonly #deps: BatchQueueDeps<Item>;
  readonly #database: Queryable;
  readonly #limit: BatchLimit<Item>;
  /** Items by key, in order; none of these keys is taken. With `join`, one item each. */
  #waiting = new Map<string, Item[]>();
  /** Items whose keys are taken. */
  readonly #blockedByKey = new Map<string, Item[]>();
  /** Number of items in these two maps. */
  #waitingCount = 0;
  readonly #parts = new BatchParts<Item>();
  readonly #aside: DelayedRetries<Item>;
  /** Keys in a statement, in a part, or set aside. */
  readonly #taken = new Set<string>();
  readonly #inFlight = new Set<Promise<void>>();
  #inLanes = 0;
  #isIsolating = false;
  /** The log has reported that something is set aside. */
  #isBlocked = false;
  /** The time from which waiting items may be sent. */
  #dueAt = Number.POSITIVE_INFINITY;
  #startedAt = Number.NEGATIVE_INFINITY;
  #resumesAt = Number.NEGATIVE_INFINITY;
  #pauseMs = 0;
  #timer: Timer | undefined;
  #timerAt = Number.POSITIVE_INFINITY;
  #isStopped = false;

  constructor(deps: BatchQueueDeps<Item>) {
    this.#deps = deps;
    this.#aside = new DelayedRetries(deps.clock);
    this.#limit = deps.batchLimit ?? new BatchLimit(deps);
    this.#database = withLimits(deps.database, { lockTimeoutMs: deps.lockTimeoutMs });
  }

  /** Items not done yet. */
  get size(): number {
    return this.#waitingCount + this.#taken.size;
  }

  /** Items whose rows are locked, or whose statements are slow. */
  get setAside(): number {
    return this.#aside.size;
  }

  /** Starts within `withinMs`; more items may gather until then. */
  add(item: Item, withinMs = 0): void {
    this.addAll([item], withinMs);
  }

  addAll(items: readonly Item[], withinMs = 0): void {
    if (this.#isStopped || items.length === 0) return;
    for (const item of items) this.#append(item);
    this.#dueAt = Math.min(this.#dueAt, this.#deps.clock.now() + withinMs);
    this.#next();
  }

  /** The waiting item of this key; only if items of one key are joined. */
  get(key: string): Item | undefined {
    return this.#queuesOf(key).get(key)?.[0];
  }

  /** Drops the waiting items of this key; an item in a statement continues. */
  delete(key: string): void {
    const queues = this.#queuesOf(key);
    this.#waitingCount -= queues.get(key)?.length ?? 0;
    queues.delete(key);
    // The statement that it may be in frees its key.
    if (this.#aside.since(key) !== undefined && !this.#aside.isInStatement(key)) this.#freeKey(key);
  }

  /** Call when `mayBegin` may have changed. */
  trigger(): void {
    this.#next();
  }

  /** Waits for running statements and begins no more; returns the waiting items, in order. */
  async stop(): Promise<Item[]> {
    this.#isStopped = true;
    this.#timer?.cancel();
    await Promise.all(this.#inFlight);
    const left = this.#left();
    this.#parts.clear();
    this.#aside.clear();
    this.#taken.clear();
    this.#waiting.clear();
    this.#blockedByKey.clear();
    this.#waitingCount = 0;
    return left;
  }

  /**
   * Stops, and tries the waiting items once more, until the database is down or all that is left is
   * locked, slow or refused. Returns the items that were not done.
   */
  async finish(): Promise<Item[]> {
    for (const item of await this.stop()) this.#append(item);
    this.#pauseMs = 0;
    while (this.#pauseMs === 0) {
      const part = this.#nextPart() ?? { items: this.#batch() };
      if (part.items.length === 0) break;
      await this.#run(part, this.#withShortLimits(part));
    }
    return this.#left();
  }

  /** Items that are in no statement, in order within each key. */
  #left(): Item[] {
    const waiting = [...this.#waiting.values(), ...this.#blockedByKey.values()];
    return [...this.#parts.items(), ...this.#aside.items(), ...waiting.flat()];
  }

  #queuesOf(key: string): Map<string, Item[]> {
    return this.#taken.has(key) ? this.#blockedByKey : this.#waiting;
  }

  #append(item: Item): void {
    const { join, keyOf } = this.#deps;
    const key = keyOf(item);
    const queues = this.#queuesOf(key);
    const queue = queues.get(key);
    const last = queue?.at(-1);
    if (queue !== undefined && last !== undefined && join !== undefined) {
      queue[queue.length - 1] = join(last, item);
      return;
    }
    if (queue === undefined) queues.set(key, [item]);
    else queue.push(item);
    this.#waitingCount += 1;
  }

  #next(): void {
    if (this.#isStopped) return;
    const now = this.#deps.clock.now();
    if (now < this.#resumesAt) return this.#wakeAt(this.#resumesAt);
    this.#nextOfWaiting(now);
    this.#nextOfParts();
  }

  #nextOfWaiting(now: number): void {
    const { minIntervalMs = 0, concurrency = 1 } = this.#deps;
    while (this.#inLanes < concurrency && this.#waiting.size > 0 && this.#deps.mayBegin?.() !== false) {
      const at = Math.max(this.#dueAt, this.#startedAt + minIntervalMs);
      if (at > now) return this.#wakeAt(at);
      const items = this.#batch();
      this.#startedAt = now;
      this.#inLanes += 1;
      this.#begin({ items }, this.#database, () => {
        this.#inLanes -= 1;
      });
    }
  }

  #nextOfParts(): void {
    if (this.#isIsolating || this.#deps.mayBegin?.() === false) return;
    const part = this.#nextPart() ?? { items: this.#aside.takeDue((items) => this.#limit.count(items)) };
    if (part.items.length === 0) return this.#wakeAt(this.#aside.dueAt);
    this.#isIsolating = true;
    this.#begin(part, this.#withShortLimits(part), () => {
      this.#isIsolating = false;
    });
  }

  #nextPart(): BatchPart<Item> | undefined {
    return this.#parts.take((items) => this.#limit.count(items));
  }

  #withShortLimits({ pace }: BatchPart<Item>): Queryable {
    const limits = { lockTimeoutMs: ISOLATING_LOCK_TIMEOUT_MS, statementTimeoutMs: pace?.statementTimeoutMs };
    return withLimits(this.#deps.database, limits);
  }

  #begin(part: BatchPart<Item>, database: Queryable, ended: () => void): void {
    const running = this.#run(part, database).then(() => {
      this.#inFlight.delete(running);
      ended();
      this.#next();
      this.#deps.onEnded?.();
    });
    this.#inFlight.add(running);
  }

  /** Items of different keys, in order; takes their keys. */
  #batch(): Item[] {
    const batch: Item[] = [];
    const count = this.#limit.count(this.#firstOfEachKey());
    for (const [key, [first, ...rest]] of this.#waiting) {
      if (first === undefined || batch.length === count) break;
      batch.push(first);
      this.#taken.add(key);
      this.#waiting.delete(key);
      if (rest.length > 0) this.#blockedByKey.set(key, rest);
    }
    this.#waitingCount -= batch.length;
    if (this.#waiting.size === 0) this.#dueAt = Number.POSITIVE_INFINITY;
    return batch;
  }

  *#firstOfEachKey(): Generator<Item> {
    for (const [first] of this.#waiting.values()) if (first !== undefined) yield first;
  }

  /** Never rejects. */
  async #run(part: BatchPart<Item>, database: Queryable): Promise<void> {
    const { clock, work } = this.#deps;
    const batch = part.items;
    const timed = new TimedDatabase(database, clock);
    try {
      const skipped = new Set(await work(batch, timed));
      const { tookMs } = timed;
      this.#noteAnswer();
      this.#parts.succeeded(part);
      this.#limit.answered(batch, tookMs);
      for (const item of batch) {
        if (skipped.has(item)) this.#setAside(item, new DatabaseBusyError('locked'), { isAlone: false, tookMs });
        else this.#free(item);
      }
    } catch (error) {
      const { tookMs } = timed;
      if (isUnanswered(error)) this.#limit.unanswered(batch, tookMs);
      this.#failed(part, error, tookMs);
    }
  }

  #failed(part: BatchPart<Item>, error: unknown, tookMs: number): void {
    const batch = part.items;
    const isDown = error instanceof DatabaseUnavailableError;
    if ((isDown || isUnanswered(error)) && this.#deps.onLost?.(batch, error)) {
      for (const one of batch) this.#free(one);
    } else if (isDown) {
      this.#requeueAll(batch, error);
    } else {
      if (batch.length === 1 || !isUnanswered(error)) this.#noteAnswer();
      this.#parts.failed(part, { reason: error instanceof DatabaseBusyError ? error.condition : 'refused', tookMs });
      if (batch.length === 1) this.#failedAlone(batch[0] as Item, error, tookMs);
    }
  }

  #requeueAll(batch: Item[], error: DatabaseUnavailableError): void {
    const { clock, log, what } = this.#deps;
    for (const item of batch) this.#free(item);
    const later = [...this.#waiting.values()].flat();
    this.#waiting.clear();
    this.#waitingCount -= later.length;
    for (const item of [...batch, ...later]) this.#append(item);
    this.#dueAt = clock.now();
    if (this.#pauseMs === 0)
      log.warn({ what, reason: messageOf(error.cause ?? error) }, 'database work: waits for the database');
    this.#pauseMs = nextBackoffMs(this.#pauseMs);
    this.#resumesAt = clock.now() + this.#pauseMs;
  }

  #failedAlone(item: Item, error: unknown, tookMs: number): void {
    const { keyOf, log, onRefused, what } = this.#deps;
    if (error instanceof DatabaseBusyError) return this.#setAside(item, error, { isAlone: true, tookMs });
    const instead = onRefused === undefined ? item : onRefused(item, error);
    if (instead === undefined) return this.#free(item);
    const key = keyOf(instead);
    const isFirst = this.#aside.since(key) === undefined;
    const pauseMs = this.#aside.put(key, instead, { isAlone: true, tookMs, isRefused: onRefused === undefined });
    if (onRefused === undefined && (isFirst || pauseMs >= REFUSED_PAUSE_MS))
      log.error({ err: error, what, key }, 'database work: an item failed; it will be retried');
  }

  #setAside(item: Item, error: DatabaseBusyError, how: FailedTry): void {
    const { onBusy, clock, keyOf, log, sizeOf, what } = this.#deps;
    const key = keyOf(item);
    const since = this.#aside.since(key);
    const agedMs = since === undefined ? how.tookMs : clock.now() - since;
    if (onBusy?.(item, error, agedMs)) return this.#free(item);
    const pauseMs = this.#aside.put(key, item, how);
    const isTooLarge = error.condition === 'unanswered' && since === undefined;
    if (!isTooLarge && (pauseMs < MAX_PAUSE_MS || this.#isBlocked)) return;
    this.#isBlocked = true;
    const fields = { what, key, size: sizeOf?.(item), took_ms: Math.round(how.tookMs), set_aside: this.#aside.size };
    log.warn(fields, reasons[error.condition]);
  }

  #free(item: Item): void {
    this.#freeKey(this.#deps.keyOf(item));
  }

  #freeKey(key: string): void {
    this.#taken.delete(key);
    this.#aside.delete(key);
    if (this.#aside.size === 0) this.#isBlocked = false;
    const queue = this.#blockedByKey.get(key);
    if (queue === undefined) return;
    this.#blockedByKey.delete(key);
    this.#waiting.set(key, queue);
    this.#dueAt = Math.min(this.#dueAt, this.#deps.clock.now());
  }

  #noteAnswer(): void {
    if (this.#pauseMs > 0) this.#deps.log.info({ what: this.#deps.what }, 'database work: continues after a failure');
    this.#pauseMs = 0;
  }

  #wakeAt(at: number): void {
    if (at === Number.POSITIVE_INFINITY || this.#timerAt <= at) return;
    const { clock } = this.#deps;
    this.#timer?.cancel();
    this.#timerAt = at;
    this.#timer = clock.after(Math.max(0, at - clock.now()), () => {
      this.#timerAt = Number.POSITIVE_INFINITY;
      this.#next();
    });
  }
}

const reasons = {
  locked: 'database work: an item waits for a locked row; the others continue',
  slow: 'database work: an item takes the database too long; the others continue',
  resources: 'database work: an item needs more resources than the database has; the others continue',
  unanswered: 'database work: an answer did not arrive in time, the item may be too large; the others continue',
} satisfies Record<DatabaseBusyError['condition'], string>;
