/**
 * Gives tasks to servers with old agents, which hold no session: claims what is queued for them, has each task posted,
 * once, and its end recorded (docs/design.md section 5, "Old agents"). Any instance may claim, the row names the run that did,
 * and only that run's process posts. Owned by the dispatcher.
 *
 *     hint (created here, or offered by another instance) ─┐
 *     slow poll: all servers ──────────────────────────────┴▶ claim ──▶ held: posting ──▶ ended ──recorded──▶ forgotten
 *     slow poll ──▶ post what a lost answer had claimed; end what dead runs had posted; say unrecorded ends again
 *     retire() ──▶ claims no more, offers its hints to the others        stop() ──▶ what is posting ends as unknown
 *
 * One claim at a time, and a slow poll's work between claims: so what the database says this run has claimed, and it did
 * not hold when it asked, was never posted.
 */
import type { Bus, Subscription } from '../bus/bus.ts';
import { POSTS_TOPIC } from '../bus/topics.ts';
import type { Logger } from '../log.ts';
import type { Queryable } from '../moray/database.ts';
import { type Clock, isoNow } from '../ports/clock.ts';
import { Runner } from '../waits/runner.ts';
import type { ChangedTask } from './claim-store.ts';
import type { TaskMessenger } from './messenger.ts';
import { claimPosts, endDeadPosts, movePosts, type PostOrder, type PostRoom, readLostPosts } from './post-store.ts';
import { type EndReport, type ReportSubject, sizeOf, toEnd, withoutResult } from './report.ts';

export interface PostsDeps {
  database: Queryable;
  bus: Bus;
  messenger: TaskMessenger;
  /** This instance's run now. */
  run: () => string;
  clock: Clock;
  log: Logger;
  config: { taskOverdueMs: number; adoptGraceMs: number };
  /** Records an end, and calls `acknowledge` when that is done; told again until then. */
  record: (subject: ReportSubject, end: EndReport, acknowledge: () => void) => void;
  /** These changed: tell whoever waits for them. */
  onChanged: (changed: readonly ChangedTask[]) => void;
  /** Held at once. Default 2,000 posts with 64 MiB of params. */
  room?: PostRoom;
}

export interface PostStats {
  /** Tasks whose end this instance waits for. */
  postsInFlight: number;
  posted: number;
  /** Of dead runs, ended here. */
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
/** Of ends not recorded yet; above it what agents returned is not kept. */
const MAX_ENDS_SIZE = 64 * 1024 * 1024;
const MAX_PER_CLAIM = 500;
const MAX_SERVERS_PER_CLAIM = 500;
const MAX_BATCHES = 20;

export class Posts {
  readonly #deps: PostsDeps;
  readonly #room: PostRoom;
  readonly #claims: Runner;
  readonly #wanted = new Set<string>();
  /** Servers with a queue, and no room for more until some of theirs have ended. */
  readonly #full = new Set<string>();
  readonly #held = new Map<string, Post>();
  readonly #posting = new Set<Promise<void>>();
  #heldBytes = 0;
  #endsSize = 0;
  #isStopping = false;
  #isPollDue = false;
  #isRetired = false;
  #offers: Subscription | undefined;
  #posted = 0;
  #lost = 0;

  constructor(deps: PostsDeps) {
    this.#deps = deps;
    this.#room = deps.room ?? DEFAULT_ROOM;
    this.#claims = new Runner({
      clock: deps.clock,
      log: deps.log,
      what: 'claims of tasks for old agents',
      hasWork: () => this.#isPollDue || (this.#wanted.size > 0 && this.#mayClaim()),
      work: () => this.#work(),
    });
  }

  start(): void {
    this.#offers = this.#deps.bus.subscribe(POSTS_TOPIC, ({ server_uuid: serverUuid }) => {
      if (typeof serverUuid === 'string' && this.#mayClaim()) this.#want(serverUuid);
    });
  }

  /** There may be something queued for this server, which may have an old agent. */
  hint(serverUuid: string): void {
    if (this.#mayClaim()) this.#want(serverUuid);
    else this.#deps.bus.publish(POSTS_TOPIC, { server_uuid: serverUuid });
  }

  /** Everything that a hint might have missed is looked at soon. */
  poll(): void {
    this.#isPollDue = true;
    this.#claims.kick();
  }

  /** Nothing more is claimed here; what is held goes on. */
  retire(): void {
    this.#isRetired = true;
    for (const serverUuid of this.#wanted) this.hint(serverUuid);
    this.#wanted.clear();
  }

  /** What is held ends as unknown, and is told to the recorder. */
  async stop(): Promise<void> {
    this.retire();
    this.#isStopping = true;
    this.#offers?.close();
    for (const { giveUp } of this.#held.values()) giveUp.abort();
    await this.#claims.stop();
    await Promise.all(this.#posting);
  }

  stats(): PostStats {
    return { postsInFlight: this.#held.size, posted: this.#posted, postsLost: this.#lost };
  }

  #mayClaim(): boolean {
    return !this.#isRetired && this.#held.size < this.#room.posts && this.#heldBytes < this.#room.bytes;
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
      if (this.#mayClaim()) await (isPoll ? this.#claim() : this.#claimWanted());
    } catch (error) {
      this.#isPollDue ||= isPoll;
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
    const posts = Math.min(MAX_PER_CLAIM, this.#room.posts - this.#held.size);
    const room = { posts, bytes: this.#room.bytes - this.#heldBytes };
    const { orders, full } = await claimPosts(this.#deps.database, run, { ...(servers && { servers }), room });
    for (const order of orders) this.#hold(order, run);
    for (const serverUuid of full) {
      // As many as were asked for: the server itself may have room for more.
      if (orders.length === posts) this.#wanted.add(serverUuid);
      else this.#full.add(serverUuid);
    }
  }

  async #catchUp(): Promise<void> {
    this.#full.clear();
    await this.#moveToNewRun();
    await this.#findLost();
    await this.#endThoseOfDeadRuns();
    for (const post of this.#held.values()) this.#record(post);
  }

  /** The run they were claimed under was declared dead, and this process goes on: so do they. */
  async #moveToNewRun(): Promise<void> {
    const to = this.#deps.run();
    const moving = Map.groupBy(this.#held.values(), (post) => post.run);
    moving.delete(to);
    for (const [from, posts] of moving) {
      const moved = await movePosts(
        this.#deps.database,
        { from, to },
        posts.map(({ order }) => order.id),
      );
      for (const post of posts) {
        if (moved.has(post.order.id)) post.run = to;
        else this.#forget(post);
      }
    }
  }

  async #findLost(): Promise<void> {
    const run = this.#deps.run();
    const held = [...this.#held.keys()];
    const orders = await readLostPosts(this.#deps.database, run, { held, limit: MAX_PER_CLAIM });
    for (const order of orders) this.#hold(order, run);
  }

  async #endThoseOfDeadRuns(): Promise<void> {
    for (let batches = 0; batches < MAX_BATCHES; batches++) {
      const ids = await endDeadPosts(this.#deps.database, this.#deps.config.adoptGraceMs);
      if (ids.length === 0) return;
      this.#lost += ids.length;
      this.#deps.log.warn({ tasks: ids }, 'tasks ended whose poster is dead');
      this.#deps.onChanged(ids.map((id) => ({ id, ended: true })));
    }
  }

  #hold(order: PostOrder, run: string): void {
    const post: Post = { order, run, giveUp: new AbortController() };
    this.#held.set(order.id, post);
    this.#heldBytes += order.params_bytes;
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

  /** It has ended, here or elsewhere. */
  #forget(post: Post): void {
    const { id, server_uuid: serverUuid, params_bytes } = post.order;
    if (this.#held.get(id) !== post) return;
    this.#held.delete(id);
    this.#heldBytes -= params_bytes;
    if (post.end !== undefined) this.#endsSize -= sizeOf(post.end);
    post.giveUp.abort();
    if (this.#full.has(serverUuid)) this.hint(serverUuid);
    else this.#claims.kick();
  }
}
