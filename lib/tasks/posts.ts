/**
 * Gives tasks to servers with legacy agents, which hold no session: claims their queued tasks, has
 * each task posted once, and records its end (docs/design.md section 5, "Legacy agents"). Any
 * instance may claim. The row names the run that claimed, and only that run's process posts. Owned
 * by the dispatcher.
 *
 *     hint (created here or offered by another instance) ─┐
 *     slow poll: all servers ─────────────────────────────┴▶ claim ──▶ given ──read──▶ held
 *     held ──posted──▶ ended ──recorded──▶ forgotten
 *     slow poll ──▶ post lost claims; end posts of dead runs; repeat unrecorded ends
 *     retire() ──▶ claims no more, offers its hints to other instances
 *     stop() ──▶ posts in flight end as unknown
 *
 * Claims run one at a time, and the slow poll's work runs between claims. So a task that this run
 * has claimed according to the database, and did not know of when it asked, was never posted. Given
 * tasks take room just as held tasks do.
 */
import type { Bus, Subscription } from '../bus/bus.ts';
import { POSTS_TOPIC } from '../bus/topics.ts';
import type { Logger } from '../log.ts';
import type { Queryable } from '../moray/database.ts';
import { type Clock, isoNow, type Timer } from '../ports/clock.ts';
import { Runner } from '../waits/runner.ts';
import { Again } from './again.ts';
import type { ChangedTask } from './claim-store.ts';
import { DeadPosters } from './dead-posters.ts';
import type { TaskMessenger } from './messenger.ts';
import {
  claimPosts,
  endPosts,
  findLostPosts,
  type GivenPost,
  movePosts,
  type PostOrder,
  type PostRoom,
  readDeadPosters,
  readPosts,
} from './post-store.ts';
import { readInBatches } from './read-batches.ts';
import { type EndReport, type ReportSubject, sizeOf, toEnd, withoutResult } from './report.ts';

interface PostsDeps {
  database: Queryable;
  bus: Bus;
  messenger: TaskMessenger;
  /** This instance's current run. */
  run: () => string;
  clock: Clock;
  log: Logger;
  config: { taskOverdueMs: number; adoptGraceMs: number; slowPollMs: number };
  /** Records an end, and calls `acknowledge` once it is recorded. Called again until then. */
  record: (subject: ReportSubject, end: EndReport, acknowledge: () => void) => void;
  /** These tasks changed: wake those who wait for them. */
  onChanged: (changed: readonly ChangedTask[]) => void;
  /** Limits of what is held at once. Default 2,000 posts with 64 MiB of params. */
  room?: PostRoom;
}

export interface PostStats {
  /** Tasks whose end this instance waits for. */
  postsInFlight: number;
  posted: number;
  /** Posts of dead runs, ended here. */
  postsLost: number;
}

interface Post {
  order: PostOrder;
  /** The run that the row names. */
  run: string;
  giveUp: AbortController;
  end?: EndReport;
}

const DEFAULT_ROOM: PostRoom = { posts: 2_000, bytes: 64 * 1024 * 1024 };
/** Of ends not recorded yet; above it the results are dropped. */
const MAX_ENDS_SIZE = 64 * 1024 * 1024;
const MAX_PER_CLAIM = 500;
const MAX_SERVERS_PER_CLAIM = 500;
const MAX_BATCHES = 20;
/** A dead run's posts must be moved within `adoptGraceMs`. */
const MOVE_AGAIN_MS = 200;
/** Missed slow polls after which an observer counts as having stood still. */
const MAX_MISSED_POLLS = 3;

export class Posts {
  readonly #deps: PostsDeps;
  readonly #room: PostRoom;
  readonly #claims: Runner;
  readonly #wanted = new Set<string>();
  /** Servers with a queue that have no room until some of their posts have ended. */
  readonly #full = new Set<string>();
  readonly #again: Again;
  readonly #deadPosters: DeadPosters;
  /** Claimed but not read yet. */
  readonly #given = new Map<string, { post: GivenPost; run: string }>();
  readonly #held = new Map<string, Post>();
  readonly #posting = new Set<Promise<void>>();
  /** Bytes of params of given and held tasks. */
  #bytes = 0;
  #endsSize = 0;
  #isStopping = false;
  #isPollDue = false;
  #moveAgain: Timer | undefined;
  #isRetired = false;
  #offers: Subscription | undefined;
  #posted = 0;
  #lost = 0;

  constructor(deps: PostsDeps) {
    this.#deps = deps;
    this.#room = deps.room ?? DEFAULT_ROOM;
    this.#again = new Again(deps.clock, (serverUuid) => this.hint(serverUuid));
    const { adoptGraceMs, slowPollMs } = deps.config;
    this.#deadPosters = new DeadPosters({ graceMs: adoptGraceMs, maxGapMs: MAX_MISSED_POLLS * slowPollMs });
    this.#claims = new Runner({
      clock: deps.clock,
      log: deps.log,
      what: 'claims of tasks for old agents',
      hasWork: () => this.#isPollDue || this.#given.size > 0 || (this.#wanted.size > 0 && this.#mayClaim()),
      work: () => this.#work(),
    });
  }

  /** Whether this instance could post more. */
  get hasRoom(): boolean {
    const { posts, bytes } = this.#roomLeft;
    return posts > 0 && bytes > 0;
  }

  start(): void {
    this.#offers = this.#deps.bus.subscribe(POSTS_TOPIC, ({ server_uuid: serverUuid }) => {
      if (typeof serverUuid === 'string' && this.#mayClaim()) this.#want(serverUuid);
    });
  }

  /**
   * This server may have queued tasks, and perhaps a legacy agent. Without room here, the server is
   * offered to the other instances. It is claimed here later if they had no room either.
   */
  hint(serverUuid: string): void {
    if (!this.#mayClaim()) this.#deps.bus.publish(POSTS_TOPIC, { server_uuid: serverUuid });
    if (!this.#isRetired) this.#want(serverUuid);
  }

  /** Soon checks everything that a hint may have missed. */
  poll(): void {
    this.#isPollDue = true;
    this.#claims.kick();
  }

  /** Claims nothing more here; held posts continue. */
  retire(): void {
    this.#isRetired = true;
    for (const serverUuid of this.#wanted) this.hint(serverUuid);
    this.#wanted.clear();
  }

  /** Held posts end as unknown, and their ends go to the recorder. */
  async stop(): Promise<void> {
    this.retire();
    this.#isStopping = true;
    this.#again.stop();
    this.#moveAgain?.cancel();
    this.#offers?.close();
    for (const { giveUp } of this.#held.values()) giveUp.abort();
    await this.#claims.stop();
    await Promise.all(this.#posting);
  }

  stats(): PostStats {
    return { postsInFlight: this.#held.size, posted: this.#posted, postsLost: this.#lost };
  }

  get #roomLeft(): PostRoom {
    const { posts, bytes } = this.#room;
    return { posts: posts - this.#held.size - this.#given.size, bytes: bytes - this.#bytes };
  }

  #mayClaim(): boolean {
    return !this.#isRetired && this.hasRoom;
  }

  #want(serverUuid: string): void {
    this.#full.delete(serverUuid);
    this.#wanted.add(serverUuid);
    this.#claims.kick();
  }

  async #work(): Promise<void> {
    const isPoll = this.#isPollDue;
    this.#isPollDue = false;
    try {
      if (isPoll) await this.#catchUp();
      await this.#readGiven();
      if (this.#mayClaim() && isPoll) await this.#claim();
      else if (this.#mayClaim() && this.#wanted.size > 0) await this.#claimWanted();
    } catch (error) {
      this.#isPollDue ||= isPoll;
      if (isPoll) this.#deadPosters.forget();
      throw error;
    }
  }

  async #claimWanted(): Promise<void> {
    const servers = [...this.#wanted].slice(0, MAX_SERVERS_PER_CLAIM);
    for (const serverUuid of servers) this.#wanted.delete(serverUuid);
    try {
      await this.#claim(servers);
    } catch (error) {
      for (const serverUuid of servers) this.#wanted.add(serverUuid);
      throw error;
    }
  }

  /** For these servers, or for all. */
  async #claim(servers?: readonly string[]): Promise<void> {
    const run = this.#deps.run();
    const posts = Math.min(MAX_PER_CLAIM, this.#roomLeft.posts);
    const room = { posts, bytes: this.#roomLeft.bytes };
    const { database } = this.#deps;
    const { given, full, again } = await claimPosts(database, run, { ...(servers && { servers }), room });
    this.#give(given, run);
    for (const serverUuid of full) {
      // This instance's own room was the limit: the server may have room for more.
      if (given.length === posts || !this.hasRoom) this.#wanted.add(serverUuid);
      else this.#full.add(serverUuid);
    }
    this.#again.add(again);
    await this.#readGiven();
  }

  #give(posts: readonly GivenPost[], run: string): void {
    for (const post of posts) {
      this.#given.set(post.id, { post, run });
      this.#bytes += post.params_bytes;
    }
  }

  #notGiven(id: string): void {
    this.#bytes -= this.#given.get(id)?.post.params_bytes ?? 0;
    this.#given.delete(id);
  }

  /**
   * With the database down, given tasks wait. A task that cannot be read takes no room; the slow
   * poll finds it again.
   */
  async #readGiven(): Promise<void> {
    const { database, log } = this.#deps;
    for (const [run, given] of Map.groupBy(this.#given.values(), (one) => one.run)) {
      const posts = given.map(({ post }) => post);
      const read = (batch: readonly GivenPost[]) =>
        readPosts(
          database,
          run,
          batch.map(({ id }) => id),
        );
      for await (const { read: orders } of readInBatches(posts, read, log)) {
        for (const order of orders) this.#hold(order, run);
      }
      for (const { id } of posts) this.#notGiven(id);
    }
  }

  async #catchUp(): Promise<void> {
    this.#full.clear();
    await this.#moveToNewRun();
    await this.#findLost();
    await this.#endThoseOfDeadRuns();
    for (const post of this.#held.values()) this.#record(post);
  }

  /**
   * The run that claimed these posts was declared dead, but this process continues: it moves them
   * to its new run.
   */
  async #moveToNewRun(): Promise<void> {
    const to = this.#deps.run();
    const { database } = this.#deps;
    const moving = Map.groupBy([...this.#held.values(), ...this.#given.values()], (one) => one.run);
    moving.delete(to);
    for (const [from, all] of moving) {
      const { moved, locked } = await movePosts(database, { from, to }, all.map(idOf));
      if (locked.size > 0) this.#moveAgain ??= this.#deps.clock.after(MOVE_AGAIN_MS, () => this.#pollAgain());
      for (const one of all) {
        if (locked.has(idOf(one))) continue;
        if (moved.has(idOf(one))) one.run = to;
        else if ('order' in one) this.#forget(one);
        else this.#notGiven(idOf(one));
      }
    }
  }

  #pollAgain(): void {
    this.#moveAgain = undefined;
    this.poll();
  }

  /** Finds as many as there is room for; a later poll finds the others. */
  async #findLost(): Promise<void> {
    if (!this.hasRoom) return;
    const run = this.#deps.run();
    const known = [...this.#held.keys(), ...this.#given.keys()];
    const limit = Math.min(MAX_PER_CLAIM, this.#roomLeft.posts);
    for (const post of await findLostPosts(this.#deps.database, run, { known, limit }))
      if (this.hasRoom) this.#give([post], run);
  }

  async #endThoseOfDeadRuns(): Promise<void> {
    const { database, clock, log } = this.#deps;
    const runs = this.#deadPosters.seen(await readDeadPosters(database), clock.now());
    for (let batches = 0; runs.length > 0 && batches < MAX_BATCHES; batches++) {
      const ids = await endPosts(database, runs);
      if (ids.length === 0) return;
      this.#lost += ids.length;
      log.warn({ tasks: ids }, 'tasks ended because the instance that posted them is dead');
      this.#deps.onChanged(ids.map((id) => ({ id, ended: true })));
    }
  }

  #hold(order: PostOrder, run: string): void {
    const post: Post = { order, run, giveUp: new AbortController() };
    this.#notGiven(order.id);
    this.#held.set(order.id, post);
    this.#bytes += order.params_bytes;
    this.#posted += 1;
    if (this.#isStopping) post.giveUp.abort();
    const posting = this.#post(post).finally(() => this.#posting.delete(posting));
    this.#posting.add(posting);
  }

  async #post(post: Post): Promise<void> {
    const { id, server_uuid: serverUuid, attempt, name, params, req_id, timeout_ms } = post.order;
    const task = { id, serverUuid, name, params, requestId: req_id ?? undefined };
    const timeoutMs = timeout_ms + this.#deps.config.taskOverdueMs;
    const end = await this.#deps.messenger.post(task, { timeoutMs, signal: post.giveUp.signal });
    const { outcome, error } = { error: undefined, ...end };
    this.#deps.log.debug({ task: id, req_id, attempt, server_uuid: serverUuid, outcome, error }, 'task posted: ended');
    this.#keepEnd(post, toEnd({ type: 'task_end', id, attempt, reportedAt: isoNow(this.#deps.clock), ...end }));
    this.#record(post);
  }

  #keepEnd(post: Post, end: EndReport): void {
    const isTooMuch = this.#endsSize + sizeOf(end) > MAX_ENDS_SIZE;
    post.end = isTooMuch ? withoutResult(end, 'too much was waiting to be recorded') : end;
    this.#endsSize += sizeOf(post.end);
  }

  #record(post: Post): void {
    const { id, server_uuid: serverUuid, attempt } = post.order;
    if (post.end === undefined || this.#held.get(id) !== post) return;
    this.#deps.record({ id, serverUuid, attempt }, post.end, () => this.#forget(post));
  }

  /** The post has ended, here or elsewhere. */
  #forget(post: Post): void {
    const { id, server_uuid: serverUuid, params_bytes } = post.order;
    if (this.#held.get(id) !== post) return;
    this.#held.delete(id);
    this.#bytes -= params_bytes;
    if (post.end !== undefined) this.#endsSize -= sizeOf(post.end);
    post.giveUp.abort();
    if (this.#full.has(serverUuid)) this.hint(serverUuid);
    else this.#claims.kick();
  }
}

const idOf = (one: Post | { post: GivenPost }): string => ('order' in one ? one.order.id : one.post.id);
