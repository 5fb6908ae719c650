/**
 * The objects that waits on this instance watch, and the last position read of each. A watch
 * registers, subscribes, then reads (law 1). It reads again at each hint, whenever a subscription
 * is confirmed, and on the slow poll that all share. Reads are gathered: one statement reads the
 * positions of many objects. Used by the waits for tasks and for tickets.
 *
 * The changes that every wait needs arrive on one topic for all objects (changes.ts), from the
 * first watch on. Other events of one object arrive on a topic of its own, while a watch wants
 * them.
 */
import type { Bus, Subscription } from '../bus/bus.ts';
import type { Logger } from '../log.ts';
import { BatchQueue } from '../postgres/batches/batch-queue.ts';
import type { Queryable } from '../postgres/database.ts';
import type { Clock } from '../time/clock.ts';
import { changedIds } from './changes.ts';
import { TooManyWaitersError, WaitStoppedError } from './wait-errors.ts';

interface WatchesDeps<Position> {
  database: Queryable;
  bus: Bus;
  clock: Clock;
  log: Logger;
  /** Default 10,000. */
  maxWatches?: number | undefined;
  /** The name of one awaited object, for people to read. */
  what: string;
  /** The topic of the changes that every wait needs. */
  topic: string;
  /** The topic of one object's other events, if there is one. */
  eventsTopic?: (id: string) => string;
  /** Reads the positions of all ids in one statement; leaves out objects that do not exist. */
  read: (database: Queryable, ids: readonly string[]) => Promise<Iterable<readonly [id: string, position: Position]>>;
  /**
   * Objects only move forward. True if `next`, although it arrived later, was read before `last`.
   */
  isBefore: (next: Position, last: Position) => boolean;
}

/** The result of the last read. Without a position the object does not exist. */
export interface LastRead<Position> {
  position: Position | undefined;
}

interface Watched<Position> {
  id: string;
  watches: Set<Watch<Position>>;
  /** The subscription to its events, from the first watch on that wants them. */
  events: Subscription | undefined;
}

const MAX_BATCH = 500;

export class Watches<Position> {
  readonly #deps: WatchesDeps<Position>;
  readonly #maxWatches: number;
  /** The objects to read, by id. */
  readonly #reads: BatchQueue<string>;
  readonly #watched = new Map<string, Watched<Position>>();
  #changes: Subscription | undefined;
  #count = 0;
  #isStopped = false;

  constructor(deps: WatchesDeps<Position>) {
    this.#deps = deps;
    this.#maxWatches = deps.maxWatches ?? 10_000;
    this.#reads = new BatchQueue<string>({
      ...deps,
      what: `reading of awaited ${deps.what}s`,
      keyOf: (id) => id,
      join: (id) => id,
      maxBatch: MAX_BATCH,
      concurrency: 2,
      work: (ids, database) => this.#readBatch(ids, database),
    });
  }

  get count(): number {
    return this.#count;
  }

  /**
   * `wantsEvents`: wake at each event, not only at the end. The caller must close the watch.
   * @throws TooManyWaitersError, WaitStoppedError
   */
  open(id: string, wantsEvents: boolean): Watch<Position> {
    if (this.#isStopped) throw new WaitStoppedError(this.#deps.what, id);
    if (this.#count >= this.#maxWatches) throw new TooManyWaitersError(this.#maxWatches);
    const watch: Watch<Position> = new Watch<Position>({
      ...this.#deps,
      id,
      wantsEvents,
      onClose: () => this.#close(watch),
    });
    this.#count += 1;
    this.#subscribeToChanges();
    const watched = this.#watchedOf(id);
    watched.watches.add(watch);
    if (wantsEvents) this.#subscribeToEvents(watched);
    this.#read(id);
    return watch;
  }

  /** The object changed, or may have changed. */
  wake(id: string, isEnded: boolean): void {
    const watched = this.#watched.get(id);
    if (watched === undefined) return;
    if (isEnded || [...watched.watches].some((watch) => watch.wantsEvents)) this.#read(id);
  }

  poll(): void {
    for (const id of this.#watched.keys()) this.#read(id);
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    for (const { id, watches } of this.#watched.values()) {
      for (const watch of watches) watch.fail(new WaitStoppedError(this.#deps.what, id));
    }
    this.#changes?.close();
    await this.#reads.stop();
  }

  #watchedOf(id: string): Watched<Position> {
    let watched = this.#watched.get(id);
    if (watched === undefined) {
      watched = { id, watches: new Set(), events: undefined };
      this.#watched.set(id, watched);
    }
    return watched;
  }

  #subscribeToChanges(): void {
    const { bus, topic } = this.#deps;
    this.#changes ??= bus.subscribe(
      topic,
      (message) => {
        for (const id of changedIds(message)) this.wake(id, true);
      },
      () => this.poll(),
    );
  }

  #subscribeToEvents(watched: Watched<Position>): void {
    const { bus, eventsTopic } = this.#deps;
    if (eventsTopic === undefined) return;
    const read = () => this.#read(watched.id);
    watched.events ??= bus.subscribe(eventsTopic(watched.id), read, read);
  }

  #close(watch: Watch<Position>): void {
    const watched = this.#watched.get(watch.id);
    if (!watched?.watches.delete(watch)) return;
    this.#count -= 1;
    if (watched.watches.size > 0) return;
    watched.events?.close();
    this.#watched.delete(watch.id);
    this.#reads.delete(watch.id);
  }

  #read(id: string): void {
    this.#reads.add(id);
  }

  async #readBatch(ids: readonly string[], database: Queryable): Promise<undefined> {
    // A watch that opens during the read waits for the next one: this read may have run before the
    // object existed.
    const waiting = ids.flatMap((id) => [...(this.#watched.get(id)?.watches ?? [])]);
    const found = new Map(await this.#deps.read(database, ids));
    for (const watch of waiting) watch.move(found.get(watch.id));
  }
}

export interface UntilOptions {
  /** Default: no timeout. */
  timeoutMs?: number;
  signal?: AbortSignal | undefined;
  /** Ends the wait as a timeout does. */
  endSignal?: AbortSignal | undefined;
}

interface Awaiter<Position> {
  isReached: (position: Position | undefined) => boolean;
  settle: (error?: unknown) => void;
}

interface WatchDeps<Position> extends Pick<WatchesDeps<Position>, 'clock' | 'isBefore'> {
  id: string;
  wantsEvents: boolean;
  onClose: () => void;
}

/** One wait's view of the object that it waits for. */
export class Watch<Position> {
  readonly id: string;
  readonly wantsEvents: boolean;
  readonly #deps: WatchDeps<Position>;
  #seen: LastRead<Position> | undefined;
  #awaiter: Awaiter<Position> | undefined;
  #failure: Error | undefined;

  constructor(deps: WatchDeps<Position>) {
    this.id = deps.id;
    this.wantsEvents = deps.wantsEvents;
    this.#deps = deps;
  }

  /**
   * Resolves to the last read once it `isReached`, or when the time is up; then undefined if
   * nothing could be read at all. One call at a time.
   * @throws WaitStoppedError, the signal's reason
   */
  until(
    isReached: Awaiter<Position>['isReached'],
    { timeoutMs, signal, endSignal }: UntilOptions,
  ): Promise<LastRead<Position> | undefined> {
    return new Promise((resolve, reject) => {
      if (this.#failure !== undefined) return reject(this.#failure);
      if (signal?.aborted) return reject(signal.reason);
      if (endSignal?.aborted || (this.#seen && isReached(this.#seen.position))) return resolve(this.#seen);
      const onAbort = () => this.#awaiter?.settle(signal?.reason);
      const onEnd = () => this.#awaiter?.settle();
      const timer =
        timeoutMs === undefined ? undefined : this.#deps.clock.after(timeoutMs, () => this.#awaiter?.settle());
      signal?.addEventListener('abort', onAbort);
      endSignal?.addEventListener('abort', onEnd);
      const settle = (error?: unknown) => {
        this.#awaiter = undefined;
        timer?.cancel();
        signal?.removeEventListener('abort', onAbort);
        endSignal?.removeEventListener('abort', onEnd);
        if (error === undefined) resolve(this.#seen);
        else reject(error);
      };
      this.#awaiter = { isReached, settle };
    });
  }

  move(position: Position | undefined): void {
    const last = this.#seen?.position;
    if (last !== undefined && position !== undefined && this.#deps.isBefore(position, last)) return;
    this.#seen = { position };
    if (this.#awaiter?.isReached(position)) this.#awaiter.settle();
  }

  /**
   * The database no longer has what `seen` reported: the next read counts, even if its position is
   * lower.
   */
  invalidate(seen: LastRead<Position> | undefined): void {
    if (this.#seen === seen) this.#seen = undefined;
  }

  fail(error: Error): void {
    this.#failure = error;
    this.#awaiter?.settle(error);
  }

  close(): void {
    this.#deps.onClose();
  }
}
