/**
 * Gives tasks to servers with legacy agents, which hold no session: claims their queued tasks, has
 * each task posted once, and records its end (docs/design/legacy-agents.md). Any instance may
 * claim. The row names the run that claimed, and only that run's process posts. Created by
 * `core.ts` and owned by `Tasks`.
 *
 *     hint (created here or offered by another instance) ─┐
 *     slow poll: servers that wait ───────────────────────┴▶ claim ──▶ held ──read──▶ posted
 *     posted, or its reads are unanswered ──▶ ended ──recorded──▶ forgotten
 *     slow poll ──▶ post lost claims; end posts of dead runs; repeat unrecorded ends
 *     stopClaiming() ──▶ claims no more, offers its hints to other instances
 *     stop() ──▶ posts in flight end as unknown
 *
 * Claims, polls, reads and moves to a new run each go through the batching engine, under its
 * failure rule (`lib/platform/postgres/batches/batch-queue.ts`). Claims run one at a time, and the
 * slow poll's work runs between claims. So a task that this run has claimed according to the
 * database, and did not know of when it asked, was never posted. A task takes room from its claim
 * on.
 */
import type { Bus, Subscription } from '../../platform/bus/bus.ts';
import { DatabaseUnavailableError } from '../../platform/errors.ts';
import type { Logger } from '../../platform/log.ts';
import { BatchQueue } from '../../platform/postgres/batches/batch-queue.ts';
import type { Queryable } from '../../platform/postgres/database.ts';
import { runEachStep } from '../../platform/postgres/each-step.ts';
import { type Clock, isoNow } from '../../platform/time/clock.ts';
import { ClaimProgress } from '../tasks/dispatch/claim-progress.ts';
import { MAX_READ_BYTES, MAX_READ_TASKS } from '../tasks/dispatch/claim-store.ts';
import { failedReads } from '../tasks/dispatch/failed-reads.ts';
import type { PostDispatch, PostOutcomes, PostStats } from '../tasks/dispatch/post-dispatch.ts';
import { toEnd } from '../tasks/reports/report.ts';
import { taskEnds } from '../tasks/store/task.ts';
import type { PostLimits } from '../tasks/store/task-limits.ts';
import { DeadPosts } from './dead-posts.ts';
import { type HeldPost, HeldPosts, idOf } from './held-posts.ts';
import type { LegacyAgentApi } from './legacy-agent-api.ts';
import {
  type ClaimedPostRow,
  claimPosts,
  findLostPosts,
  movePosts,
  type PostOrder,
  readPosts,
  readWaitingServers,
} from './post-store.ts';
import type { PostedEnd } from './task-answer.ts';

interface LegacyDispatchDeps extends PostOutcomes {
  database: Queryable;
  bus: Bus;
  agents: Pick<LegacyAgentApi, 'post'>;
  /** This instance's current run. */
  run: () => string;
  clock: Clock;
  log: Logger;
  config: { taskOverdueMs: number; ownerlessGraceMs: number; slowPollMs: number };
  /** Limits of what is held concurrently. Default 2,000 posts with 64 MiB of params. */
  room?: PostLimits;
}

const DEFAULT_ROOM: PostLimits = { posts: 2_000, bytes: 64 * 1024 * 1024 };
const MAX_PER_CLAIM = 500;
const MAX_SERVERS_PER_CLAIM = 500;
/** Servers found by one slow poll; they are claimed for in several statements, as there is room. */
const MAX_SERVERS_PER_POLL = 5_000;
const MAX_MOVED_AT_ONCE = 2_000;
/** Reads wait this long, so that all tasks of one claim are read together. */
const GATHER_MS = 1;
const POLL = 'poll';
/**
 * Tasks may be queued for a server with a legacy agent: `{server_uuid}`. For any instance that has
 * room.
 */
export const POSTS_TOPIC = 'posts';

export class LegacyDispatch implements PostDispatch {
  readonly #deps: LegacyDispatchDeps;
  /** Servers to claim for. */
  readonly #claims: BatchQueue<string>;
  readonly #polls: BatchQueue<typeof POLL>;
  readonly #reads: BatchQueue<HeldPost>;
  readonly #moves: BatchQueue<HeldPost>;
  /** Servers with a queue that have no room until some of their posts have ended. */
  readonly #saturatedServers = new Set<string>();
  readonly #progress: ClaimProgress;
  /** Servers to claim for again that were offered since the last slow poll. */
  readonly #offered = new Set<string>();
  readonly #deadPosts: DeadPosts;
  readonly #held: HeldPosts;
  readonly #posting = new Set<Promise<void>>();
  #isStopping = false;
  #hasStoppedClaiming = false;
  /** The last claim or poll; the next one begins after it. */
  #turn: Promise<unknown> = Promise.resolve();
  #offers: Subscription | undefined;
  #posted = 0;

  constructor(deps: LegacyDispatchDeps) {
    this.#deps = deps;
    this.#held = new HeldPosts(deps.room ?? DEFAULT_ROOM);
    this.#progress = new ClaimProgress(deps.clock, (servers) => {
      for (const serverUuid of servers) this.#hintAgain(serverUuid);
    });
    this.#deadPosts = new DeadPosts(deps);
    this.#claims = new BatchQueue<string>({
      ...deps,
      what: 'claims of tasks for legacy agents',
      keyOf: (serverUuid) => serverUuid,
      join: (_, later) => later,
      maxBatch: MAX_SERVERS_PER_CLAIM,
      mayBegin: () => this.#mayClaim(),
      work: (servers, database) => this.#inTurn(() => this.#claim(servers, database)),
    });
    this.#polls = new BatchQueue<typeof POLL>({
      ...deps,
      what: 'the slow poll of tasks for legacy agents',
      keyOf: (poll) => poll,
      join: (_, later) => later,
      maxBatch: 1,
      work: (_, database) => this.#inTurn(() => this.#catchUp(database)),
    });
    this.#reads = new BatchQueue<HeldPost>({
      ...deps,
      what: 'reads of tasks for legacy agents',
      keyOf: idOf,
      maxBatch: MAX_READ_TASKS,
      maxBatchSize: MAX_READ_BYTES,
      sizeOf: ({ claimed }) => claimed.params_bytes,
      work: (posts, database) => this.#read(posts, database),
      ...failedReads<HeldPost>({
        claimOf: ({ claimed: { params_bytes: paramsBytes, ...claimed } }) => ({ ...claimed, paramsBytes }),
        end: (post) => this.#ended(post, { outcome: 'failure', error: taskEnds.notRead }),
        forget: (post) => this.#forget(post),
        log: deps.log,
      }),
    });
    this.#moves = new BatchQueue<HeldPost>({
      ...deps,
      what: 'posts that move to a new run',
      keyOf: idOf,
      join: (_, later) => later,
      maxBatch: MAX_MOVED_AT_ONCE,
      work: (all, database) => this.#moveToNewRun(all, database),
    });
  }

  get hasRoom(): boolean {
    const { posts, bytes } = this.#held.room;
    return posts > 0 && bytes > 0;
  }

  /**
   * While this instance has no room (`hasRoom`), the sweep does not expire tasks of these servers.
   */
  endClaimPeriod(): string[] {
    return this.#mayClaim() ? this.#progress.endPeriod() : [];
  }

  start(): void {
    this.#offers = this.#deps.bus.subscribe(POSTS_TOPIC, ({ server_uuid: serverUuid }) => {
      if (typeof serverUuid === 'string' && this.#mayClaim()) this.hint(serverUuid);
    });
  }

  /**
   * This server may have queued tasks, and perhaps a legacy agent. Without room here, the server is
   * offered to the other instances. It is claimed here later if they had no room either.
   */
  hint(serverUuid: string): void {
    if (!this.#mayClaim()) this.#offer(serverUuid);
    if (!this.#hasStoppedClaiming) this.#claimFor(serverUuid);
  }

  /** Soon checks everything that a hint may have missed. */
  poll(): void {
    this.#polls.add(POLL);
  }

  /** Claims nothing more here; held posts continue. */
  stopClaiming(): void {
    if (this.#hasStoppedClaiming) return;
    this.#hasStoppedClaiming = true;
    this.#offered.clear();
    void this.#claims.stop().then((left) => {
      for (const serverUuid of left) this.#offer(serverUuid);
    });
  }

  /**
   * Held posts end as unknown, and their ends go to the recorder. `Tasks.stop` limits the time.
   */
  async stop(): Promise<void> {
    this.stopClaiming();
    this.#isStopping = true;
    this.#progress.stop();
    this.#offers?.close();
    for (const { giveUp } of this.#held.all()) giveUp.abort();
    await Promise.all([this.#claims.stop(), this.#polls.stop(), this.#moves.stop()]);
    // Reads the tasks of the last claim. Their posts are given up immediately, so those tasks end
    // now.
    await this.#reads.finish();
    await Promise.all(this.#posting);
  }

  stats(): PostStats {
    return { postsInFlight: this.#held.size, posted: this.#posted, postsLost: this.#deadPosts.ended };
  }

  #mayClaim(): boolean {
    return !this.#hasStoppedClaiming && this.hasRoom;
  }

  #claimFor(serverUuid: string): void {
    this.#saturatedServers.delete(serverUuid);
    this.#progress.wanted([serverUuid]);
    this.#claims.add(serverUuid);
  }

  /** Otherwise a full instance with many waiting servers would offer all of them at each claim. */
  #hintAgain(serverUuid: string): void {
    if (this.#offered.has(serverUuid)) return this.#claimFor(serverUuid);
    if (!this.#mayClaim()) this.#offered.add(serverUuid);
    this.hint(serverUuid);
  }

  #offer(serverUuid: string): void {
    this.#deps.bus.publish(POSTS_TOPIC, { server_uuid: serverUuid });
  }

  #inTurn(work: () => Promise<undefined>): Promise<undefined> {
    const done = this.#turn.then(work);
    this.#turn = done.catch(() => undefined);
    return done;
  }

  async #claim(servers: readonly string[], database: Queryable): Promise<undefined> {
    if (!this.#mayClaim()) {
      // The claim before this one took the room.
      for (const serverUuid of servers) this.hint(serverUuid);
      return;
    }
    const run = this.#deps.run();
    const room = { ...this.#held.room, posts: Math.min(MAX_PER_CLAIM, this.#held.room.posts) };
    const claiming = claimPosts(database, run, { servers, room });
    const { given, full, again } = await claiming.catch((error) => this.#progress.failed(servers, error));
    for (const post of given) this.#give(post, run);
    for (const serverUuid of full) {
      // This instance's own room was the limit: the server may have room for more.
      if (given.length === room.posts || !this.hasRoom) this.hint(serverUuid);
      else this.#saturatedServers.add(serverUuid);
    }
    // If the room of this instance was the limit, `again` does not mean that a row is locked.
    const held = new Set(given.length < room.posts ? again : []);
    this.#progress.answered(servers.filter((serverUuid) => !held.has(serverUuid)));
    this.#progress.heldUp(again);
  }

  #give(claimed: ClaimedPostRow, run: string): void {
    this.#reads.add(this.#held.add(claimed, run), GATHER_MS);
  }

  /**
   * A task that is not returned has ended. If one read fails, all are repeated: nothing begins
   * before.
   */
  async #read(posts: readonly HeldPost[], database: Queryable): Promise<undefined> {
    const orders = new Map<string, PostOrder>();
    for (const [run, some] of Map.groupBy(posts, (one) => one.run))
      for (const order of await readPosts(database, run, some.map(idOf))) orders.set(order.id, order);
    for (const post of posts) {
      const order = orders.get(idOf(post));
      if (order === undefined) this.#forget(post);
      else this.#begin(post, order);
    }
  }

  async #catchUp(database: Queryable): Promise<undefined> {
    this.#offered.clear();
    const run = this.#deps.run();
    const posts = this.#held.all();
    const moving = posts.filter((post) => post.run !== run);
    for (const post of moving) this.#moves.add(post);
    for (const post of posts) this.#record(post);
    try {
      await runEachStep([
        () => this.#findLost(run, posts.map(idOf), database),
        () => this.#deadPosts.end(database, new Set(moving.map((post) => post.run))),
        () => this.#findWaiting(database),
      ]);
    } catch (error) {
      if (error instanceof DatabaseUnavailableError) this.#deadPosts.forget();
      throw error;
    }
  }

  /** Finds servers whose hint may have been lost; they wait for room here like the others. */
  async #findWaiting(database: Queryable): Promise<void> {
    if (!this.#mayClaim()) return;
    const { withRoom, full } = await readWaitingServers(database, MAX_SERVERS_PER_POLL);
    this.#saturatedServers.clear();
    for (const serverUuid of full) this.#saturatedServers.add(serverUuid);
    this.#progress.wanted(withRoom);
    this.#claims.addAll(withRoom);
  }

  /**
   * The run that claimed these posts was declared dead, but this process continues: it moves them
   * to its new run. Returns those whose rows are locked.
   */
  async #moveToNewRun(all: readonly HeldPost[], database: Queryable): Promise<HeldPost[]> {
    const to = this.#deps.run();
    const left: HeldPost[] = [];
    for (const [from, some] of Map.groupBy(all, (one) => one.run)) {
      if (from === to) continue;
      const { moved, locked } = await movePosts(database, { from, to }, some.map(idOf));
      for (const one of some) {
        if (locked.has(idOf(one))) left.push(one);
        else if (moved.has(idOf(one))) one.run = to;
        else this.#forget(one);
      }
    }
    return left;
  }

  /** Finds as many as there is room for; a later poll finds the others. */
  async #findLost(run: string, known: readonly string[], database: Queryable): Promise<void> {
    if (!this.hasRoom) return;
    const limit = Math.min(MAX_PER_CLAIM, this.#held.room.posts);
    for (const post of await findLostPosts(database, run, { known, limit })) if (this.hasRoom) this.#give(post, run);
  }

  #begin(post: HeldPost, order: PostOrder): void {
    if (!this.#held.has(post)) return;
    this.#posted += 1;
    if (this.#isStopping) post.giveUp.abort();
    const posting = this.#post(post, order).finally(() => this.#posting.delete(posting));
    this.#posting.add(posting);
  }

  async #post(post: HeldPost, order: PostOrder): Promise<void> {
    const { id, server_uuid: serverUuid, attempt, name, params, req_id, timeout_ms } = order;
    const task = { id, serverUuid, name, params, requestId: req_id ?? undefined };
    const timeoutMs = timeout_ms + this.#deps.config.taskOverdueMs;
    const end = await this.#deps.agents.post(task, { timeoutMs, signal: post.giveUp.signal });
    const { outcome, error } = { error: undefined, ...end };
    this.#deps.log.debug(
      { task: id, req_id, attempt, server_uuid: serverUuid, outcome, error },
      'task: posted -> ended',
    );
    this.#ended(post, end);
  }

  #ended(post: HeldPost, posted: PostedEnd): void {
    const { id, attempt } = post.claimed;
    if (!this.#held.has(post)) return;
    this.#held.end(post, toEnd({ type: 'task_end', id, attempt, reportedAt: isoNow(this.#deps.clock), ...posted }));
    this.#record(post);
  }

  #record(post: HeldPost): void {
    const { id, server_uuid: serverUuid, attempt } = post.claimed;
    if (post.end === undefined) return;
    this.#deps.record({ id, serverUuid, attempt }, post.end, () => this.#forget(post));
  }

  /** The post has ended, here or elsewhere. */
  #forget(post: HeldPost): void {
    const { server_uuid: serverUuid } = post.claimed;
    if (!this.#held.delete(post)) return;
    post.giveUp.abort();
    if (this.#saturatedServers.has(serverUuid)) this.hint(serverUuid);
    else this.#claims.trigger();
  }
}
