/**
 * Sends to this instance's agents what the rows of push jobs say, and stores what they answer
 * (docs/design/push-jobs.md). Every instance has one. Owned by `push-jobs.ts`.
 *
 *     a job was created, changed or ended (by bus) ─┐
 *     an agent's session began ─────────────────────┼──▶ read orders ──▶ push_timeout, push_abort
 *     slow poll ────────────────────────────────────┘──▶ then read who has not voted ──▶ push_prepare
 *     push_vote ──▶ store ──▶ wake the job's coordinator;   refused ──▶ push_abort
 *     push_aborted ──▶ the server leaves rehab
 *
 * All of it may happen twice, or on two instances: an agent answers a repeated frame like the
 * first, and each answer is stored under the job's rules.
 */

import type { Bus, Subscription } from '../../../platform/bus/bus.ts';
import { chunksOf } from '../../../platform/chunks.ts';
import type { Logger } from '../../../platform/log.ts';
import { BatchQueue } from '../../../platform/postgres/batches/batch-queue.ts';
import type { Queryable } from '../../../platform/postgres/database.ts';
import type { Clock } from '../../../platform/time/clock.ts';
import { changedIds, publishChanges } from '../../../platform/waits/changes.ts';
import { SlowPoll } from '../../../platform/waits/slow-poll.ts';
import { encodeFrame } from '../../../protocol/link/codec.ts';
import type {
  PushAbortedFrame,
  PushOrderFrame,
  PushPrepareFrame,
  PushVoteFrame,
} from '../../../protocol/link/frames.ts';
import { PUSH_CAPABILITY, PUSH_TIMEOUT_CAPABILITY } from '../../../protocol/push.ts';
import { PUSH_CHANGES_TOPIC, PUSH_ORDERS_TOPIC } from '../push-topics.ts';
import { AnswerQueue, GATHER_MS } from './answer-queue.ts';
import {
  endRehab,
  endRehabOfRemoved,
  type NodeKey,
  type OrderSelection,
  type PushOrder,
  readOpenNodes,
  readOrders,
  readPrepares,
  readTimeoutChanges,
  readVoters,
  storeVotes,
  type TimeoutChanges,
  type Vote,
} from './messenger-store.ts';

type Voter = Pick<PushSession, 'serverUuid' | 'incarnation'>;

/** A live session of this instance, as push jobs see it. */
export interface PushSession {
  readonly serverUuid: string;
  /** The process of the agent. */
  readonly incarnation: string;
  readonly capabilities: ReadonlySet<string>;
  readonly socket: {
    /** Whether the agent has not read yet what it was sent. */
    readonly isBackedUp: boolean;
    /** `text`: the encoded frame, if many are sent the same one. */
    send(frame: PushOrderFrame, text?: string): boolean;
  };
}

export interface AgentMessengerDeps {
  database: Queryable;
  bus: Bus;
  clock: Clock;
  log: Logger;
  config: { slowPollMs: number; slowPollNoBusMs: number };
  /** The server's session, if this instance holds one and its inventory has arrived. */
  session: (serverUuid: string) => PushSession | undefined;
  /** What agents have not read yet: while it is half full, nobody is asked. */
  unsent: { readonly isHalfFull: boolean };
}

/** Why orders are read: a job has changed, a server's session needs its own, or it is time. */
type Reason = { jobId: string } | { serverUuid: string } | 'poll';

const ORDERS_A_PAGE = 1_000;
/** Each may bring a file: about 200 KB. */
const PREPARES_AT_ONCE = 20;
const MAX_SERVERS = 500;
const ROOM_PAUSE_MS = 50;
/** How many bytes of the same `prepare` are sent before other work has its turn. */
const BYTES_AT_ONCE = 1024 * 1024;
/** So that a job with a large file on slow links does not delay the others. */
const ASK_LANES = 4;

interface AgentMessengerStats {
  prepares: number;
  aborts: number;
  votes: number;
}

export class AgentMessenger {
  readonly #deps: AgentMessengerDeps;
  readonly #orders: BatchQueue<Reason>;
  /** These wait for room in the memory for unsent frames. */
  readonly #asks: BatchQueue<Reason>;
  readonly #votes: AnswerQueue<Vote>;
  readonly #releases: AnswerQueue<NodeKey>;
  /**
   * The job of each server's last `ready` vote that was dropped: the agent may wait for the start.
   */
  readonly #dropped = new Map<string, string>();
  readonly #poll: SlowPoll;
  #subscription: Subscription | undefined;
  readonly #stopping = new AbortController();
  readonly #counts = { prepares: 0, aborts: 0, votes: 0 };
  /**
   * Changes of limits that were sent, by job, to the sessions of that moment. Later sessions
   * receive the limit when they begin.
   */
  readonly #timeoutChangesRead = new Map<string, number>();
  /** What each session was told last. */
  #timeoutsTold = new WeakMap<PushSession, PushOrder>();

  constructor(deps: AgentMessengerDeps) {
    this.#deps = deps;
    const queue = { ...deps, keyOf, join: (reason: Reason) => reason, maxBatch: MAX_SERVERS };
    this.#orders = new BatchQueue<Reason>({
      ...queue,
      what: 'orders of push jobs',
      work: async (reasons, database) => {
        for (const selection of selectionsOf(reasons)) await this.#sendOrders(database, selection);
        this.#asks.addAll(reasons);
        return undefined;
      },
    });
    this.#asks = new BatchQueue<Reason>({
      ...queue,
      what: 'questions of push jobs',
      concurrency: ASK_LANES,
      work: async (reasons, database) => {
        for (const selection of selectionsOf(reasons)) await this.#askVoters(database, selection);
        return undefined;
      },
    });
    this.#votes = new AnswerQueue<Vote>({
      ...deps,
      what: 'votes of push jobs',
      work: (votes, database) => this.#store(votes, database),
    });
    this.#releases = new AnswerQueue<NodeKey>({
      ...deps,
      what: 'servers that leave rehab',
      work: async (releases, database) => {
        const locked = await endRehab(database, releases);
        return releases.filter(({ serverUuid }) => locked.has(serverUuid));
      },
    });
    this.#poll = new SlowPoll({
      ...deps,
      what: 'orders of push jobs',
      work: async () => {
        this.#orders.add('poll');
        await this.#forgetDropped(deps.database);
      },
    });
  }

  start(): void {
    this.#subscription = this.#deps.bus.subscribe(PUSH_ORDERS_TOPIC, (message) =>
      this.sendOrdersFor(changedIds(message)),
    );
    this.#poll.start();
  }

  async stop(): Promise<void> {
    this.#subscription?.close();
    this.#stopping.abort();
    const queues = [this.#orders, this.#asks].map((queue) => queue.stop());
    await Promise.all([this.#poll.stop(), ...queues, this.#votes.finish(), this.#releases.finish()]);
  }

  /** Agents may have to be asked to take part in these jobs, or to forget them. */
  sendOrdersFor(jobIds: readonly string[]): void {
    this.#orders.addAll(
      jobIds.map((jobId) => ({ jobId })),
      GATHER_MS,
    );
  }

  sessionBegan(serverUuid: string): void {
    this.#orders.add({ serverUuid }, GATHER_MS);
  }

  onVote({ serverUuid, incarnation }: Voter, { job: jobId, ready, reason, message, busyWith }: PushVoteFrame): void {
    const isKept = this.#votes.add({ jobId, serverUuid, incarnation, ready, reason, message, busyWith });
    if (isKept) this.#counts.votes += 1;
    if (!ready) return;
    if (isKept) this.#dropped.delete(serverUuid);
    else this.#dropped.set(serverUuid, jobId);
  }

  onAborted({ serverUuid }: Voter, { job: jobId }: PushAbortedFrame): void {
    this.#releases.add({ jobId, serverUuid });
  }

  /** Returns how many servers left rehab, at most a batch. */
  endRehabOfRemoved(): Promise<number> {
    return endRehabOfRemoved(this.#deps.database, MAX_SERVERS);
  }

  stats(): AgentMessengerStats {
    return { ...this.#counts };
  }

  async #sendOrders(database: Queryable, selection: OrderSelection): Promise<void> {
    const changes = selection.servers === undefined ? await readTimeoutChanges(database, selection.jobs) : [];
    const timeoutsSince = changes.flatMap((one) => this.#unread(one));
    const pages = pagesOf((page) => readOrders(database, { ...selection, timeoutsSince, ...page }));
    for await (const orders of pages)
      for (const order of orders) {
        if (order.what === 'abort') this.#forgetAt(order.serverUuid, order.jobId);
        else this.#sendTimeout(order);
      }
    for (const { jobId, changes: count } of changes) this.#timeoutChangesRead.set(jobId, count);
    const isPoll = selection.jobs === undefined && selection.servers === undefined;
    if (isPoll) this.#keepTimeoutChangesOf(changes);
  }

  /**
   * There are fewer changes than before if the database has lost the last ones. Then their numbers
   * are used again.
   */
  #unread({ jobId, changes }: TimeoutChanges): TimeoutChanges[] {
    const read = this.#timeoutChangesRead.get(jobId) ?? 0;
    if (changes < read) this.#timeoutsTold = new WeakMap();
    return changes === read ? [] : [{ jobId, changes: changes > read ? read : 0 }];
  }

  /** Forgets the jobs that have ended. */
  #keepTimeoutChangesOf(changes: readonly TimeoutChanges[]): void {
    const jobs = new Set(changes.map(({ jobId }) => jobId));
    for (const jobId of this.#timeoutChangesRead.keys()) if (!jobs.has(jobId)) this.#timeoutChangesRead.delete(jobId);
  }

  async #askVoters(database: Queryable, selection: OrderSelection): Promise<void> {
    for await (const voters of pagesOf((page) => readVoters(database, { ...selection, ...page }))) {
      const here = voters.filter(({ serverUuid }) => this.#deps.session(serverUuid) !== undefined);
      const nodes = Map.groupBy(here, ({ jobId }) => jobId);
      const jobs = [...nodes.keys()];
      for (const some of chunksOf(jobs, PREPARES_AT_ONCE)) {
        const frames = await readPrepares(database, some);
        for (const [jobId, frame] of frames) await this.#askAll(nodes.get(jobId) ?? [], frame);
      }
    }
  }

  /**
   * Encodes the frame once, as it may have a megabyte, and yields to other work between batches.
   */
  async #askAll(nodes: readonly NodeKey[], frame: PushPrepareFrame): Promise<void> {
    const { clock } = this.#deps;
    const text = encodeFrame(frame);
    const atOnce = Math.ceil(BYTES_AT_ONCE / text.length);
    for (let start = 0; start < nodes.length; start += atOnce) {
      if (start > 0) await new Promise<void>((resolve) => clock.afterPoll(resolve));
      for (const { serverUuid } of nodes.slice(start, start + atOnce)) await this.#ask(serverUuid, frame, text);
    }
  }

  /**
   * The slow poll asks again, without end, so an agent that has not read the last question is left
   * out: otherwise copies would pile up until its connection is closed.
   */
  async #ask(serverUuid: string, frame: PushPrepareFrame, text: string): Promise<void> {
    while (this.#deps.unsent.isHalfFull && !this.#stopping.signal.aborted)
      await this.#deps.clock.sleep(ROOM_PAUSE_MS, this.#stopping.signal);
    const session = this.#deps.session(serverUuid);
    if (session === undefined) return;
    if (!session.capabilities.has(PUSH_CAPABILITY)) return this.#voteUnsupported(session, frame.job);
    if (session.socket.isBackedUp) return;
    this.#counts.prepares += 1;
    session.socket.send(frame, text);
  }

  /**
   * Sends a timeout once in each session: its agent receives it, or the session ends. Of two reads
   * at the same time, the older one may be answered last.
   */
  #sendTimeout(order: PushOrder): void {
    const { serverUuid, jobId, timeoutMs, change } = order;
    const session = this.#deps.session(serverUuid);
    if (timeoutMs === null || !session?.capabilities.has(PUSH_TIMEOUT_CAPABILITY)) return;
    const told = this.#timeoutsTold.get(session);
    if (told?.jobId === jobId && (told.change ?? 0) > (change ?? 0)) return;
    const isKnown = told?.jobId === jobId && told.timeoutMs === timeoutMs;
    // The number of a known one counts, too: an older one may still come.
    if (isKnown || session.socket.send({ type: 'push_timeout', job: jobId, timeoutMs }))
      this.#timeoutsTold.set(session, order);
  }

  #forget(session: PushSession, jobId: string): void {
    if (!session.capabilities.has(PUSH_CAPABILITY)) {
      this.#releases.add({ jobId, serverUuid: session.serverUuid });
      return;
    }
    this.#counts.aborts += 1;
    session.socket.send({ type: 'push_abort', job: jobId });
  }

  #voteUnsupported({ serverUuid, incarnation }: PushSession, jobId: string): void {
    const message = 'its agent does not take part in push jobs';
    this.#votes.add({
      jobId,
      serverUuid,
      incarnation,
      ready: false,
      reason: 'unsupported',
      message,
      busyWith: undefined,
    });
  }

  /** Returns the votes that must be stored again. */
  async #store(votes: readonly Vote[], database: Queryable): Promise<Vote[]> {
    const results = await storeVotes(database, votes);
    const { locked = [], refused = [], stored = [] } = Object.groupBy(votes, (_, index) => results[index] ?? 'stored');
    for (const vote of refused) this.#forgetAt(vote.serverUuid, vote.jobId);
    publishChanges(this.#deps.bus, PUSH_CHANGES_TOPIC, [...new Set(stored.map(({ jobId }) => jobId))]);
    await this.#releaseBlockers(stored, database);
    return locked;
  }

  /** An agent may be busy with a job that no longer wants it. */
  async #releaseBlockers(votes: readonly Vote[], database: Queryable): Promise<void> {
    const blocked = votes.flatMap(({ serverUuid, busyWith }) =>
      busyWith === undefined ? [] : { serverUuid, jobId: busyWith },
    );
    await this.#forgetEnded(blocked, database);
  }

  /**
   * While its node is open, an agent whose vote was dropped is asked again. If the node has ended
   * without the vote, nobody else tells the agent. In a new session it votes again.
   */
  async #forgetDropped(database: Queryable): Promise<void> {
    const dropped = Array.from(this.#dropped, ([serverUuid, jobId]) => ({ serverUuid, jobId }));
    for (const some of chunksOf(dropped, MAX_SERVERS)) {
      const told = await this.#forgetEnded(some, database);
      for (const { serverUuid, jobId } of told)
        if (this.#dropped.get(serverUuid) === jobId) this.#dropped.delete(serverUuid);
    }
  }

  /**
   * Returns those of these nodes that have ended: their agents were told, if they have sessions
   * here.
   */
  async #forgetEnded(nodes: readonly NodeKey[], database: Queryable): Promise<NodeKey[]> {
    if (nodes.length === 0) return [];
    const open = await readOpenNodes(database, nodes);
    const ended = nodes.filter(({ jobId, serverUuid }) => !open.has(`${jobId} ${serverUuid}`));
    for (const { jobId, serverUuid } of ended) this.#forgetAt(serverUuid, jobId);
    return ended;
  }

  #forgetAt(serverUuid: string, jobId: string): void {
    const session = this.#deps.session(serverUuid);
    if (session !== undefined) this.#forget(session, jobId);
  }
}

function keyOf(reason: Reason): string {
  if (reason === 'poll') return reason;
  return 'jobId' in reason ? `job ${reason.jobId}` : reason.serverUuid;
}

function selectionsOf(reasons: readonly Reason[]): OrderSelection[] {
  const servers: string[] = [];
  const jobs: string[] = [];
  for (const reason of reasons) {
    if (reason === 'poll') continue;
    if ('jobId' in reason) jobs.push(reason.jobId);
    else servers.push(reason.serverUuid);
  }
  const selections: OrderSelection[] = servers.length > 0 ? [{ servers }] : [];
  if (reasons.includes('poll')) selections.push({});
  else if (jobs.length > 0) selections.push({ jobs });
  return selections;
}

/** Pages of a list that is ordered by job and server. */
async function* pagesOf<Row extends NodeKey>(
  read: (page: { after: NodeKey | undefined; limit: number }) => Promise<Row[]>,
): AsyncGenerator<Row[]> {
  let after: NodeKey | undefined;
  do {
    const rows = await read({ after, limit: ORDERS_A_PAGE });
    yield rows;
    after = rows.length === ORDERS_A_PAGE ? rows.at(-1) : undefined;
  } while (after !== undefined);
}
