/**
 * Events as the rest of the instance sees them. REST follows them, from now or from a reader's
 * position, on any instance. The database records them (`migrations`). Each instance's slow
 * poll numbers the recorded changes and deletes the oldest events of a log that is too long; while
 * a reader follows, the numbering runs more often.
 */
import type { Bus } from '../../platform/bus/bus.ts';
import { Semaphore } from '../../platform/limiting/semaphore.ts';
import type { Logger } from '../../platform/log.ts';
import type { Database } from '../../platform/postgres/database.ts';
import type { Clock } from '../../platform/time/clock.ts';
import { SlowPoll } from '../../platform/waits/slow-poll.ts';
import type { Config } from '../config.ts';
import { InstanceDrainingError } from '../request-errors.ts';
import {
  type EventFilter,
  formatPosition,
  isWanted,
  type LoggedEvent,
  type Position,
  parsePosition,
  positionOf,
  positionState,
  wasRenumbered,
} from './event.ts';
import { TooManyFollowersError, UnknownEventError } from './event-errors.ts';
import {
  deleteOldEvents,
  deleteSurplusEvents,
  numberEvents,
  readEventPage,
  readLog,
  readPositionAt,
} from './event-store.ts';
import { type EventWindowPage, LogReader } from './log-reader.ts';

export interface EventsDeps {
  database: Database;
  bus: Bus;
  clock: Clock;
  log: Logger;
  config: Pick<Config, 'slowPollMs' | 'slowPollNoBusMs'>;
  /** The maximum number of concurrent followers. */
  maxFollowers?: number;
  /** How many events are kept, whatever their age. */
  keep?: number;
}

/** What a follower receives. */
export interface DeliveredEvent {
  /** The position from which the follower can continue. */
  position: string;
  /** Undefined if only the position is sent: the follower wanted none of the events up to it. */
  event: LoggedEvent | undefined;
}

interface EventStats {
  followers: number;
  /** Events that this instance has numbered. */
  numbered: number;
  gaps: number;
  lagMs: number;
}

const NUMBER_BATCH = 5_000;
const DELETE_BATCH = 20_000;
const PAGE = 100;
/**
 * Concurrent reads of the log for all followers: the connections are shared with the rest of the
 * process.
 */
const LOG_READS = 2;
/** How many events one statement scans for a reader that wants few of them. */
const SCAN = 20_000;
/** A reader receives its position after this many events that it did not want. */
const POSITION_EVERY = 1_000;
const MAX_FOLLOWERS = 1_000;
const KEEP = 1_000_000;

export class Events {
  readonly #deps: EventsDeps;
  readonly #reader: LogReader;
  readonly #slowPoll: SlowPoll;
  readonly #maxFollowers: number;
  #followers = 0;
  #numbered = 0;
  #gaps = 0;
  #lagMs = 0;
  readonly #leaving = new AbortController();
  /** Aborts when events that followers received are not in the log any more. */
  #log = new AbortController();
  readonly #logReads = new Semaphore(LOG_READS);
  #isStopped = false;

  constructor(deps: EventsDeps) {
    this.#deps = deps;
    const { database, clock, log } = deps;
    this.#maxFollowers = deps.maxFollowers ?? MAX_FOLLOWERS;
    this.#reader = new LogReader({
      database,
      clock,
      log,
      number: () => this.#number(),
      onSetBack: () => this.#endFollowers(),
    });
    this.#slowPoll = new SlowPoll({ ...deps, what: 'events', work: () => this.#poll() });
  }

  /**
   * Called before the instance makes changes itself, so that a log that no instance has numbered
   * for long is continued.
   */
  async start(): Promise<void> {
    await this.#number();
    this.#slowPoll.start();
  }

  /**
   * The instance is about to leave: followers continue at another instance, from their position.
   */
  releaseFollowers(): void {
    this.#leaving.abort();
  }

  async stop(): Promise<void> {
    this.releaseFollowers();
    this.#isStopped = true;
    await Promise.all([this.#slowPoll.stop(), this.#reader.stop()]);
  }

  /**
   * Yields the events from now on, or after `position`, as fast as the follower takes them; nothing
   * is stored for a slow one. Ends when the signal aborts, this instance leaves, or the log was set
   * back. A reader continues from its last position on any instance. `{ sinceMs }`: also those of
   * the last so many milliseconds.
   * @throws UnknownEventError, TooManyFollowersError, InstanceDrainingError,
   * DatabaseUnavailableError; the returned iterable throws DatabaseUnavailableError
   */
  async follow(
    filter: EventFilter,
    position: string | { sinceMs: number } | undefined,
    signal?: AbortSignal,
  ): Promise<AsyncIterable<DeliveredEvent>> {
    if (this.#leaving.signal.aborted) throw new InstanceDrainingError('follow events on another one', 1);
    const release = this.#acquireFollower(signal);
    try {
      const from =
        position === undefined
          ? await this.#now()
          : typeof position === 'string'
            ? await this.#find(position)
            : await this.#since(position.sinceMs);
      return this.#stream(filter, from, { isNew: position === undefined, signal, release });
    } catch (error) {
      release();
      throw error;
    }
  }

  /** Deletes one batch of the events older than `days`; returns how many it deleted. */
  deleteOlderThan(days: number): Promise<number> {
    return deleteOldEvents(this.#deps.database, days, DELETE_BATCH);
  }

  stats(): EventStats {
    return { followers: this.#followers, numbered: this.#numbered, gaps: this.#gaps, lagMs: this.#lagMs };
  }

  /**
   * Counts a follower from now on, until the returned function is called, or until `signal` aborts.
   */
  #acquireFollower(signal: AbortSignal | undefined): () => void {
    if (this.#followers >= this.#maxFollowers) throw new TooManyFollowersError(this.#maxFollowers);
    this.#followers += 1;
    let isTaken = true;
    const leave = () => {
      if (isTaken) this.#followers -= 1;
      isTaken = false;
      signal?.removeEventListener('abort', leave);
    };
    signal?.addEventListener('abort', leave);
    if (signal?.aborted) leave();
    return leave;
  }

  /** The present end of the log, with its time, so that it can be recognised later. */
  async #now(): Promise<Position> {
    for (let id = await this.#number(); ; ) {
      const { last, storedAt } = await readLog(this.#deps.database, id);
      if (id <= last) return { id, storedAtMs: storedAt?.getTime() ?? 0 };
      id = last;
    }
  }

  async #since(ms: number): Promise<Position> {
    await this.#number();
    return readPositionAt(this.#deps.database, ms);
  }

  async #find(text: string): Promise<Position> {
    const position = parsePosition(text);
    if (position === undefined) throw new UnknownEventError(text);
    const log = await readLog(this.#deps.database, position.id);
    if (positionState(position, log) === 'foreign') throw new UnknownEventError(text);
    return position;
  }

  async *#stream(
    filter: EventFilter,
    from: Position,
    follower: Follower,
  ): AsyncGenerator<DeliveredEvent, void, undefined> {
    const { isNew, signal, release } = follower;
    const turn = new Turn([this.#leaving.signal, this.#log.signal, ...(signal === undefined ? [] : [signal])]);
    const leave = this.#reader.listen(() => turn.next());
    try {
      // A reader that loses its connection before the first event can continue from here, too.
      if (isNew) yield { position: formatPosition(from), event: undefined };
      for (let at = from, sentId = at.id; !turn.isOver; ) {
        const page = this.#fromWindow(at, filter) ?? (await this.#logReads.run(() => this.#fromLog(at, filter)));
        if (page === 'foreign') return;
        for (const event of page.events) {
          if (turn.isOver) return;
          yield { position: formatPosition(positionOf(event)), event };
          sentId = event.id;
        }
        at = page.upTo;
        if (at.id - sentId >= POSITION_EVERY) {
          yield { position: formatPosition(at), event: undefined };
          sentId = at.id;
        }
        if (page.isEnd) await turn.wait(() => this.#reader.isPast(at.id));
      }
    } finally {
      release();
      leave();
      turn.end();
    }
  }

  #fromWindow(at: Position, filter: EventFilter): Page | 'foreign' | undefined {
    const newer = this.#reader.since(at, PAGE);
    return typeof newer === 'object' ? pageOf(newer, at, filter) : newer;
  }

  /**
   * If a standby was promoted meanwhile, the events and the state that is read after them may be of
   * two databases: each is compared with `at`.
   */
  async #fromLog(at: Position, filter: EventFilter): Promise<Page | 'foreign'> {
    const { database, clock } = this.#deps;
    const { last } = await readLog(database, 0);
    const upTo = Math.min(last, at.id + SCAN);
    const events = await readEventPage(database, filter, { from: at.id, upTo, limit: PAGE });
    // Read afterwards: events that were deleted meanwhile may be missing from the page.
    const log = await readLog(database, at.id);
    const { oldest } = log;
    if (wasRenumbered(events[0], at) || positionState(at, log) === 'foreign') return 'foreign';
    if (at.id + 1 >= oldest) return pageOf({ events, isEnd: (events.at(-1)?.id ?? at.id) >= last }, at, filter);
    this.#gaps += 1;
    const { storedAt = new Date(clock.wallTime()) } = await readLog(database, oldest);
    const kept = events.filter(({ id }) => id >= oldest);
    const page = pageOf({ events: kept, isEnd: false }, { id: oldest - 1, storedAtMs: 0 }, filter);
    return { ...page, events: [gapBefore(oldest, storedAt), ...page.events] };
  }

  async #number(): Promise<number> {
    for (;;) {
      const { numbered, last, waitedMs } = await numberEvents(this.#deps.database, NUMBER_BATCH);
      this.#numbered += numbered;
      if (numbered > 0) this.#lagMs = waitedMs;
      if (numbered < NUMBER_BATCH || this.#isStopped) return last;
    }
  }

  /** Ends all followers. Each learns at its next request whether its last event is in this log. */
  #endFollowers(): void {
    this.#deps.log.warn(
      { followers: this.#followers },
      'events: the log went back to an older state; its followers start again',
    );
    this.#log.abort();
    this.#log = new AbortController();
  }

  async #poll(): Promise<void> {
    const { database, keep = KEEP } = this.#deps;
    await this.#number();
    while (!this.#isStopped && (await deleteSurplusEvents(database, keep, DELETE_BATCH)) === DELETE_BATCH);
  }
}

interface Follower {
  isNew: boolean;
  signal: AbortSignal | undefined;
  release: () => void;
}

interface Page {
  events: LoggedEvent[];
  /** Nothing that the filter wants is between the page's events and this one. */
  upTo: Position;
  isEnd: boolean;
}

/** The wanted events after `at`; `upTo` says how far the page reaches. */
function pageOf({ events, isEnd }: EventWindowPage, at: Position, filter: EventFilter): Page {
  const newer = events.filter(({ id }) => id > at.id);
  const last = newer.at(-1);
  return {
    events: newer.filter((event) => isWanted(event, filter)),
    upTo: last === undefined ? at : positionOf(last),
    isEnd,
  };
}

function gapBefore(oldest: number, storedAt: Date): LoggedEvent {
  const message = `Events before ${oldest} are not kept any more: changes between the last event that you had and the next one are missing`;
  return { id: oldest - 1, kind: 'gap', serverUuid: null, storedAt, body: { message } };
}

/** Where a follower waits for new events; its signals end it. */
class Turn {
  readonly #signals: readonly AbortSignal[];
  readonly #onEnd = () => this.next();
  #resolve: (() => void) | undefined;

  constructor(signals: readonly AbortSignal[]) {
    this.#signals = signals;
    for (const one of signals) one.addEventListener('abort', this.#onEnd);
  }

  get isOver(): boolean {
    return this.#signals.some(({ aborted }) => aborted);
  }

  /** Resolves at the next call of `next`; immediately when `isDue`. */
  wait(isDue: () => boolean): Promise<void> {
    return new Promise((resolve) => {
      this.#resolve = resolve;
      if (this.isOver || isDue()) this.next();
    });
  }

  next(): void {
    this.#resolve?.();
    this.#resolve = undefined;
  }

  end(): void {
    for (const one of this.#signals) one.removeEventListener('abort', this.#onEnd);
  }
}
