/**
 * Which things somebody on this instance waits for, and where each stands. A watch registers, subscribes, then reads
 * (law 1); it reads again at each hint, whenever a subscription is confirmed, and on the slow poll that all share.
 * Reads gather: one statement tells the position of many. Used by the waits for tasks and for tickets.
 *
 * What every wait wants to know is heard on one topic for all things (changes.ts), from the first watch on; what happens to
 * one thing before that, on a topic of its own, while somebody watches it for that.
 */
import type { Bus, Subscription } from '../bus/bus.ts';
import type { Logger } from '../log.ts';
import type { Clock } from '../ports/clock.ts';
import { changedIds } from './changes.ts';
import { Runner } from './runner.ts';
import { TooManyWaitersError, WaitStoppedError } from './wait-errors.ts';

export interface WatchesDeps<Position> {
  bus: Bus;
  clock: Clock;
  log: Logger;
  /** Default 10,000. */
  maxWatches?: number | undefined;
  /** What is waited for, one of them, for people. */
  what: string;
  /** Where the changes that every wait wants to know of are told. */
  topic: string;
  /** Where it is told that something else happened to this one, if there is such. */
  eventsTopic?: (id: string) => string;
  /** In one statement where each stands; those that do not exist are left out. */
  read: (ids: readonly string[]) => Promise<Iterable<readonly [id: string, position: Position]>>;
  /** Things only move on: whether `next`, though it came after, was read before `last`. */
  isBefore: (next: Position, last: Position) => boolean;
}

/** As last read; without a position there is no such thing. */
export interface Seen<Position> {
  position: Position | undefined;
}

interface Watched<Position> {
  id: string;
  watches: Set<Watch<Position>>;
  /** Of its events, from the first watch on that wants them. */
  events: Subscription | undefined;
}

const MAX_BATCH = 500;

export class Watches<Position> {
  readonly #deps: WatchesDeps<Position>;
  readonly #maxWatches: number;
  readonly #runner: Runner;
  readonly #watched = new Map<string, Watched<Position>>();
  readonly #unread = new Set<string>();
  #changes: Subscription | undefined;
  #count = 0;
  #isStopped = false;

  constructor(deps: WatchesDeps<Position>) {
    this.#deps = deps;
    this.#maxWatches = deps.maxWatches ?? 10_000;
    this.#runner = new Runner({
      clock: deps.clock,
      log: deps.log,
      what: `reading of awaited ${deps.what}s`,
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
    this.#hearChanges();
    const watched = this.#watchedOf(id);
    watched.watches.add(watch);
    if (wantsEvents) this.#hearEvents(watched);
    this.#read(id);
    return watch;
  }

  /** It changed, or may have. */
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
      for (const watch of watches) watch.fail(new WaitStoppedError(this.#deps.what, id));
    }
    this.#changes?.close();
    await this.#runner.stop();
  }

  #watchedOf(id: string): Watched<Position> {
    let watched = this.#watched.get(id);
    if (watched === undefined) {
      watched = { id, watches: new Set(), events: undefined };
      this.#watched.set(id, watched);
    }
    return watched;
  }

  #hearChanges(): void {
    const { bus, topic } = this.#deps;
    this.#changes ??= bus.subscribe(
      topic,
      (message) => {
        for (const id of changedIds(message)) this.wake(id, true);
      },
      () => this.poll(),
    );
  }

  #hearEvents(watched: Watched<Position>): void {
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
    this.#unread.delete(watch.id);
  }

  #read(id: string): void {
    this.#unread.add(id);
    this.#runner.kick();
  }

  async #readBatch(): Promise<void> {
    const ids = [...this.#unread].slice(0, MAX_BATCH);
    for (const id of ids) this.#unread.delete(id);
    // Whoever joins during the read waits for the next one: this one may have looked before the thing was there.
    const waiting = ids.flatMap((id) => [...(this.#watched.get(id)?.watches ?? [])]);
    try {
      const found = new Map(await this.#deps.read(ids));
      for (const watch of waiting) watch.move(found.get(watch.id));
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

interface Awaiter<Position> {
  isReached: (position: Position | undefined) => boolean;
  settle: (error?: unknown) => void;
}

export interface WatchOptions<Position> extends Pick<WatchesDeps<Position>, 'clock' | 'isBefore'> {
  id: string;
  wantsEvents: boolean;
  onClose: () => void;
}

/** The longest time a timer can be set to. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

/** One wait's view of what it waits for. */
export class Watch<Position> {
  readonly id: string;
  readonly wantsEvents: boolean;
  readonly #options: WatchOptions<Position>;
  #seen: Seen<Position> | undefined;
  #awaiter: Awaiter<Position> | undefined;
  #failure: Error | undefined;

  constructor(options: WatchOptions<Position>) {
    this.id = options.id;
    this.wantsEvents = options.wantsEvents;
    this.#options = options;
  }

  /**
   * What was seen once it `isReached`, or as it is when the time is up: undefined then if nothing could be read at all.
   * One at a time. @throws WaitStoppedError, the signal's reason
   */
  until(
    isReached: Awaiter<Position>['isReached'],
    { timeoutMs, signal, over }: UntilOptions,
  ): Promise<Seen<Position> | undefined> {
    return new Promise((resolve, reject) => {
      if (this.#failure !== undefined) return reject(this.#failure);
      if (signal?.aborted) return reject(signal.reason);
      if (over?.aborted || (this.#seen && isReached(this.#seen.position))) return resolve(this.#seen);
      const onAbort = () => this.#awaiter?.settle(signal?.reason);
      const onOver = () => this.#awaiter?.settle();
      const timer =
        timeoutMs === undefined
          ? undefined
          : this.#options.clock.after(Math.min(timeoutMs, MAX_TIMEOUT_MS), () => this.#awaiter?.settle());
      signal?.addEventListener('abort', onAbort, { once: true });
      over?.addEventListener('abort', onOver, { once: true });
      const settle = (error?: unknown) => {
        this.#awaiter = undefined;
        timer?.cancel();
        signal?.removeEventListener('abort', onAbort);
        over?.removeEventListener('abort', onOver);
        if (error === undefined) resolve(this.#seen);
        else reject(error);
      };
      this.#awaiter = { isReached, settle };
    });
  }

  move(position: Position | undefined): void {
    const last = this.#seen?.position;
    if (last !== undefined && position !== undefined && this.#options.isBefore(position, last)) return;
    this.#seen = { position };
    if (this.#awaiter?.isReached(position)) this.#awaiter.settle();
  }

  /** What was `seen` is not there: the next read counts, wherever it says that the thing stands. */
  doubt(seen: Seen<Position> | undefined): void {
    if (this.#seen === seen) this.#seen = undefined;
  }

  fail(error: Error): void {
    this.#failure = error;
    this.#awaiter?.settle(error);
  }

  close(): void {
    this.#options.onClose();
  }
}
