/**
 * Which tasks somebody on this instance waits for, and how far each has come. A watch registers, subscribes, then reads
 * (law 1); it reads again at each hint, whenever its subscription is confirmed, and on the slow poll that all share.
 * Reads gather: one statement tells the position of many tasks. Called by `waiters.ts`; woken by the dispatcher.
 */
import type { Bus, Subscription } from '../bus/bus.ts';
import { taskTopic } from '../bus/topics.ts';
import type { Logger } from '../log.ts';
import type { Queryable } from '../moray/database.ts';
import type { Clock } from '../ports/clock.ts';
import { Runner } from './runner.ts';
import { TaskWaitStoppedError, TooManyWaitersError } from './task-errors.ts';
import { readPositions } from './task-store.ts';

export interface WatchesDeps {
  database: Queryable;
  bus: Bus;
  clock: Clock;
  log: Logger;
  /** Default 10,000. */
  maxWatches?: number;
}

/** How far a task has come, as last read; `lastSeq` counts its events. */
export interface Position {
  isAbsent: boolean;
  isEnded: boolean;
  lastSeq: number;
}

interface Watched {
  id: string;
  watches: Set<Watch>;
  subscription: Subscription;
}

const MAX_BATCH = 500;

export class Watches {
  readonly #deps: WatchesDeps;
  readonly #maxWatches: number;
  readonly #runner: Runner;
  readonly #watched = new Map<string, Watched>();
  readonly #unread = new Set<string>();
  #count = 0;
  #isStopped = false;

  constructor(deps: WatchesDeps) {
    this.#deps = deps;
    this.#maxWatches = deps.maxWatches ?? 10_000;
    this.#runner = new Runner({
      clock: deps.clock,
      log: deps.log,
      what: 'reading of awaited tasks',
      hasWork: () => this.#unread.size > 0,
      work: () => this.#readBatch(),
      lanes: 2,
    });
  }

  get count(): number {
    return this.#count;
  }

  /**
   * `wantsEvents`: woken at each event, not only at the end. Whoever opens closes.
   * @throws TooManyWaitersError, TaskWaitStoppedError
   */
  open(id: string, wantsEvents: boolean): Watch {
    if (this.#isStopped) throw new TaskWaitStoppedError(id);
    if (this.#count >= this.#maxWatches) throw new TooManyWaitersError(this.#maxWatches);
    const watch = new Watch(id, wantsEvents, this.#deps.clock, () => this.#close(watch));
    this.#count += 1;
    this.#watchedOf(id).watches.add(watch);
    this.#read(id);
    return watch;
  }

  /** The task changed, or may have. */
  wake(id: string, isEnded: boolean): void {
    const watched = this.#watched.get(id);
    if (watched === undefined) return;
    if (isEnded || [...watched.watches].some((watch) => watch.wantsEvents)) this.#read(id);
  }

  poll(): void {
    for (const id of this.#watched.keys()) this.#unread.add(id);
    this.#runner.kick();
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    for (const { id, watches } of this.#watched.values()) {
      for (const watch of watches) watch.fail(new TaskWaitStoppedError(id));
    }
    await this.#runner.stop();
  }

  #watchedOf(id: string): Watched {
    let watched = this.#watched.get(id);
    if (watched === undefined) {
      const subscription = this.#deps.bus.subscribe(
        taskTopic(id),
        (message) => this.wake(id, message.ended !== false),
        () => this.#read(id),
      );
      watched = { id, watches: new Set(), subscription };
      this.#watched.set(id, watched);
    }
    return watched;
  }

  #close(watch: Watch): void {
    const watched = this.#watched.get(watch.id);
    if (!watched?.watches.delete(watch)) return;
    this.#count -= 1;
    if (watched.watches.size > 0) return;
    watched.subscription.close();
    this.#watched.delete(watch.id);
    this.#unread.delete(watch.id);
  }

  #read(id: string): void {
    this.#unread.add(id);
    this.#runner.kick();
  }

  async #readBatch(): Promise<void> {
    const ids = [...this.#unread].slice(0, MAX_BATCH);
    for (const id of ids) this.#unread.delete(id);
    // Whoever joins during the read waits for the next one: this one may have looked before its task was there.
    const waiting = ids.flatMap((id) => [...(this.#watched.get(id)?.watches ?? [])]);
    try {
      const found = new Map((await readPositions(this.#deps.database, ids)).map((position) => [position.id, position]));
      for (const watch of waiting) {
        const { isEnded, lastSeq } = found.get(watch.id) ?? { isEnded: false, lastSeq: 0 };
        watch.move({ isAbsent: !found.has(watch.id), isEnded, lastSeq });
      }
    } catch (error) {
      for (const id of ids) if (this.#watched.has(id)) this.#unread.add(id);
      throw error;
    }
  }
}

export interface UntilOptions {
  /** Default: for ever. */
  timeoutMs?: number;
  signal?: AbortSignal | undefined;
  /** Ends it as its timeout does. */
  over?: AbortSignal | undefined;
}

type Awaiter = { isReached: (position: Position) => boolean; settle: (error?: unknown) => void };

/** The longest time a timer can be set to. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

/** One wait's view of a task. */
export class Watch {
  readonly id: string;
  readonly wantsEvents: boolean;
  readonly #clock: Clock;
  readonly #onClose: () => void;
  #position: Position | undefined;
  #awaiter: Awaiter | undefined;
  #failure: Error | undefined;

  constructor(id: string, wantsEvents: boolean, clock: Clock, onClose: () => void) {
    this.id = id;
    this.wantsEvents = wantsEvents;
    this.#clock = clock;
    this.#onClose = onClose;
  }

  /**
   * The position once `isReached`, or as it is when the time is up: undefined then if it could not be read at all.
   * One at a time. @throws TaskWaitStoppedError, the signal's reason
   */
  until(isReached: Awaiter['isReached'], { timeoutMs, signal, over }: UntilOptions): Promise<Position | undefined> {
    return new Promise((resolve, reject) => {
      if (this.#failure !== undefined) return reject(this.#failure);
      if (signal?.aborted) return reject(signal.reason);
      if (over?.aborted || (this.#position !== undefined && isReached(this.#position))) return resolve(this.#position);
      const onAbort = () => this.#awaiter?.settle(signal?.reason);
      const onOver = () => this.#awaiter?.settle();
      const timer =
        timeoutMs === undefined
          ? undefined
          : this.#clock.after(Math.min(timeoutMs, MAX_TIMEOUT_MS), () => this.#awaiter?.settle());
      signal?.addEventListener('abort', onAbort, { once: true });
      over?.addEventListener('abort', onOver, { once: true });
      const settle = (error?: unknown) => {
        this.#awaiter = undefined;
        timer?.cancel();
        signal?.removeEventListener('abort', onAbort);
        over?.removeEventListener('abort', onOver);
        if (error === undefined) resolve(this.#position);
        else reject(error);
      };
      this.#awaiter = { isReached, settle };
    });
  }

  move(position: Position): void {
    // Two reads may overtake each other; a task only moves on.
    const last = this.#position;
    if (last !== undefined && !position.isAbsent && position.lastSeq < last.lastSeq) return;
    this.#position = position;
    if (this.#awaiter?.isReached(position)) this.#awaiter.settle();
  }

  fail(error: Error): void {
    this.#failure = error;
    this.#awaiter?.settle(error);
  }

  close(): void {
    this.#onClose();
  }
}
