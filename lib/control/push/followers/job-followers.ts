/**
 * The callers of this instance that follow push jobs. There are two things to follow:
 *
 * - the feed of a job (feed-follower.ts), for clients of Chef Push Jobs: numbered events that the
 *   coordinator has written;
 * - its nodes and their output (node-follower.ts), for `cnapi exec` and other programs of our own:
 *   read from the rows of nodes and tasks.
 *
 * Both wait in the same way. The coordinator of a job says on the bus that the job has changed;
 * then one statement reads the positions of all jobs that have changed, and their followers read
 * what is new. A slow poll finds what a lost message would have announced. What followers cost is
 * bounded: there are at most `maxFollowers`, all their reads go through one semaphore, and
 * followers of one job that are equally far share them. Nothing is stored for a slow follower, and
 * what is remembered of nodes is bounded too (followed-nodes.ts).
 */
import type { Bus } from '../../../platform/bus/bus.ts';
import { Semaphore } from '../../../platform/limiting/semaphore.ts';
import type { Logger } from '../../../platform/log.ts';
import type { Queryable } from '../../../platform/postgres/database.ts';
import type { Clock } from '../../../platform/time/clock.ts';
import { SlowPoll } from '../../../platform/waits/slow-poll.ts';
import { TooManyWaitersError } from '../../../platform/waits/wait-errors.ts';
import { type Watch, Watches } from '../../../platform/waits/watches.ts';
import { readEventsOfMany, readLastEvents } from '../../tasks/store/task-store.ts';
import { TooManyFollowedNodesError } from '../push-errors.ts';
import { type PushJobRow, readPushJob } from '../push-store.ts';
import { PUSH_PROGRESS_TOPIC } from '../push-topics.ts';
import { followFeed } from './feed-follower.ts';
import { type FeedEvent, readFeed } from './feed-store.ts';
import { type PushJobPosition, readChangedNodes, readJobPositions } from './follow-store.ts';
import { FollowedJobs, type FollowedNodes } from './followed-nodes.ts';
import { type FollowUpdate, followNodes, type NodeReads } from './node-follower.ts';
import { SharedRead } from './shared-read.ts';

interface PushJobFollowersDeps {
  database: Queryable;
  bus: Bus;
  clock: Clock;
  log: Logger;
  config: { slowPollMs: number; slowPollNoBusMs: number };
  /** Default 1,000. */
  maxFollowers?: number;
  /** What the followers of nodes may remember; default 128 MiB. */
  maxRememberedBytes?: number;
}

const MAX_FOLLOWERS = 1_000;
/** Concurrent reads of all followers: the connections are shared with the rest of the process. */
const CONCURRENT_READS = 2;
const EVENTS_A_TASK = 10;
/** What followers remember: for instance 20 jobs of 20,000 nodes. */
const MAX_REMEMBERED_BYTES = 128 * 1024 * 1024;

/** A job as its follower has read it. */
type PushJobToFollow = Pick<PushJobRow, 'id' | 'state' | 'node_count'>;

interface FollowJobOptions {
  since: Date | undefined;
  signal: AbortSignal;
}

export class PushJobFollowers {
  readonly #clock: Clock;
  readonly #watches: Watches<PushJobPosition>;
  readonly #slowPoll: SlowPoll;
  readonly #leaving = new AbortController();
  readonly #pages: SharedRead<{ jobId: string; after: number }, FeedEvent[]>;
  readonly #nodeReads: NodeReads;
  readonly #followedJobs: FollowedJobs;
  #reads = 0;
  #refused = 0;

  constructor(deps: PushJobFollowersDeps) {
    const { clock, database, maxFollowers = MAX_FOLLOWERS, maxRememberedBytes = MAX_REMEMBERED_BYTES } = deps;
    this.#clock = clock;
    this.#followedJobs = new FollowedJobs(maxRememberedBytes);
    this.#watches = new Watches<PushJobPosition>({
      ...deps,
      what: 'push job',
      topic: PUSH_PROGRESS_TOPIC,
      maxWatches: maxFollowers,
      read: (from, ids) => this.#readPositions(from, ids),
      isBefore: (next, last) => next.number < last.number,
    });
    this.#slowPoll = new SlowPoll({ ...deps, what: 'followed push jobs', work: async () => this.#watches.poll() });
    const semaphore = new Semaphore(CONCURRENT_READS);
    this.#pages = new SharedRead(semaphore, ({ jobId, after }) => readFeed(database, jobId, after));
    this.#nodeReads = {
      job: new SharedRead(semaphore, ({ jobId }) => readPushJob(database, jobId)),
      nodes: new SharedRead(semaphore, ({ jobId, ...wanted }) => readChangedNodes(database, jobId, wanted)),
      lastEvents: new SharedRead(semaphore, ({ tasks }) => readLastEvents(database, tasks)),
      events: new SharedRead(semaphore, ({ tasks }) => readEventsOfMany(database, tasks, EVENTS_A_TASK)),
    };
  }

  get count(): number {
    return this.#watches.count;
  }

  /** What followers may remember of nodes. */
  get rememberedBytes(): number {
    return this.#followedJobs.bytes;
  }

  /** Callers that were refused because there were too many. */
  get refused(): number {
    return this.#refused;
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
   * The events of the job's feed after this number, until the job's end; ends early if the job is
   * deleted, if `signal` aborts, or if this instance leaves.
   * @throws TooManyWaitersError, WaitStoppedError; the iterable DatabaseUnavailableError
   */
  feed(jobId: string, after: number, signal: AbortSignal): AsyncIterable<FeedEvent> {
    const watch = this.#open(jobId, signal);
    return followFeed({ watch, pages: this.#pages }, { jobId, after, ending: this.#ending(signal) });
  }

  /**
   * What happens to the job and its nodes, with the output of their commands, until the job's end;
   * ends early if `signal` aborts, or if this instance leaves. `since`: a position of an earlier
   * stream.
   * @throws TooManyWaitersError, TooManyFollowedNodesError, WaitStoppedError; the iterable
   * PushJobNotFoundError if the job is deleted, DatabaseUnavailableError
   */
  nodes(
    { id: jobId, state, node_count: count }: PushJobToFollow,
    { since, signal }: FollowJobOptions,
  ): AsyncIterable<FollowUpdate> {
    const watch = this.#open(jobId, signal);
    const followed = this.#followNodes(watch, state === 'ended' ? 0 : count);
    signal.addEventListener('abort', () => followed.close(), { once: true });
    if (signal.aborted) followed.close();
    const poll = () => this.#watches.wake(jobId, true);
    return followNodes(
      { clock: this.#clock, watch, poll, reads: this.#nodeReads, followed },
      { jobId, since, ending: this.#ending(signal) },
    );
  }

  /**
   * Opens a watch that closes when `signal` aborts, even if nobody ever asks for the first event.
   */
  #open(jobId: string, signal: AbortSignal): Watch<PushJobPosition> {
    const watch = this.#counted(() => this.#watches.open(jobId, true));
    signal.addEventListener('abort', () => watch.close(), { once: true });
    if (signal.aborted) watch.close();
    return watch;
  }

  #followNodes(watch: Watch<PushJobPosition>, count: number): FollowedNodes {
    try {
      return this.#counted(() => this.#followedJobs.open(watch.id, count));
    } catch (error) {
      watch.close();
      throw error;
    }
  }

  #counted<Opened>(open: () => Opened): Opened {
    try {
      return open();
    } catch (error) {
      if (error instanceof TooManyWaitersError || error instanceof TooManyFollowedNodesError) this.#refused += 1;
      throw error;
    }
  }

  #ending(signal: AbortSignal): AbortSignal {
    return AbortSignal.any([this.#leaving.signal, signal]);
  }

  async #readPositions(database: Queryable, ids: readonly string[]) {
    this.#reads += 1;
    const number = this.#reads;
    const rows = await readJobPositions(database, ids);
    return rows.map((row) => [row.id, { ...row, number }] as const);
  }
}
