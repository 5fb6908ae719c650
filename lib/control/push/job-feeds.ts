/**
 * The feeds of push jobs that callers of this instance follow. The coordinator of a job writes its
 * feed into the database and says so on the bus, so any instance sends it from any number on. Nothing
 * is stored for a slow follower: it reads the next page when it has taken the last one.
 *
 *     read a page ──▶ send it ──▶ more? ──▶ read a page
 *                                   └─ no ─▶ wait until there is more; the job's end ends the feed
 */
import type { Bus } from '../../platform/bus/bus.ts';
import type { Clock } from '../../platform/clock.ts';
import type { Logger } from '../../platform/log.ts';
import type { Queryable } from '../../platform/postgres/database.ts';
import { Semaphore } from '../../platform/semaphore.ts';
import { SlowPoll } from '../../platform/waits/slow-poll.ts';
import { Watches } from '../../platform/waits/watches.ts';
import { type FeedEvent, type FeedPosition, readFeed, readFeedPositions } from './feed-store.ts';
import { PUSH_FEED_TOPIC } from './push-topics.ts';

export interface JobFeedsDeps {
  database: Queryable;
  bus: Bus;
  clock: Clock;
  log: Logger;
  config: { slowPollMs: number; slowPollNoBusMs: number };
}

const MAX_FOLLOWERS = 1_000;
/** Concurrent reads of pages: the connections are shared with the rest of the process. */
const PAGE_READS = 2;

export class JobFeeds {
  readonly #database: Queryable;
  readonly #watches: Watches<FeedPosition>;
  readonly #slowPoll: SlowPoll;
  readonly #leaving = new AbortController();
  readonly #pageReads = new Semaphore(PAGE_READS);
  /** Followers that are equally far share a read. */
  readonly #pages = new Map<string, Promise<FeedEvent[]>>();

  constructor(deps: JobFeedsDeps) {
    this.#database = deps.database;
    this.#watches = new Watches<FeedPosition>({
      ...deps,
      what: 'feed',
      topic: PUSH_FEED_TOPIC,
      maxWatches: MAX_FOLLOWERS,
      read: async (database, ids) =>
        (await readFeedPositions(database, ids)).map((position) => [position.id, position] as const),
      isBefore: (next, last) => next.fed < last.fed,
    });
    this.#slowPoll = new SlowPoll({ ...deps, what: 'feeds of push jobs', work: async () => this.#watches.poll() });
  }

  get followers(): number {
    return this.#watches.count;
  }

  start(): void {
    this.#slowPoll.start();
  }

  /** This instance leaves: followers continue at another one. */
  release(): void {
    this.#leaving.abort();
  }

  async stop(): Promise<void> {
    this.release();
    await Promise.all([this.#slowPoll.stop(), this.#watches.stop()]);
  }

  /**
   * The events of the job after this number, until its end; ends early if the job is deleted, if
   * `signal` aborts, or if this instance leaves. @throws TooManyWaitersError, WaitStoppedError
   */
  follow(job: string, after: number, signal: AbortSignal): AsyncIterable<FeedEvent> {
    const watch = this.#watches.open(job, true);
    signal.addEventListener('abort', () => watch.close(), { once: true });
    if (signal.aborted) watch.close();
    return this.#events(job, after, { watch, signal });
  }

  async *#events(
    job: string,
    after: number,
    { watch, signal }: { watch: ReturnType<Watches<FeedPosition>['open']>; signal: AbortSignal },
  ): AsyncGenerator<FeedEvent, void, undefined> {
    const over = AbortSignal.any([this.#leaving.signal, signal]);
    try {
      for (let at = after; ; ) {
        const isNews = (position: FeedPosition | undefined) =>
          position === undefined || position.fed > at || position.hasEnded;
        const seen = await watch.until(isNews, { endSignal: over });
        if (over.aborted) return;
        const position = seen?.position;
        if (position === undefined || position.fed <= at) return;
        const page = await this.#page(job, at);
        // The job was deleted meanwhile.
        if (page.length === 0) return;
        for (const event of page) {
          if (over.aborted) return;
          yield event;
          at = event.number;
        }
      }
    } finally {
      watch.close();
    }
  }

  #page(job: string, after: number): Promise<FeedEvent[]> {
    const key = `${job} ${after}`;
    const known = this.#pages.get(key);
    if (known !== undefined) return known;
    const page = this.#pageReads.run(() => readFeed(this.#database, job, after)).finally(() => this.#pages.delete(key));
    this.#pages.set(key, page);
    return page;
  }
}
