/**
 * Sends tasks to the agents whose sessions this instance holds: claims what is queued for them,
 * sends it, and sends it again until it is accepted. Fenced by the roster's row
 * (docs/design/tasks.md). Owned by `Tasks`.
 *
 *     hint ──────┬──▶ claim for each ──▶ read ──▶ `task` to agents
 *     slow poll ─┘         └──▶ `task_cancel`       ▲
 *     slow poll ──▶ unaccepted tasks again ─────────┘
 *               └─▶ cancels of overdue tasks
 *
 * A backed-up connection does not mean that a frame was lost: meanwhile nothing is claimed for it
 * and nothing is sent again. Otherwise copies of the same tasks would pile up until the connection
 * of a live agent is closed.
 */
import { chunksOf } from '../../../platform/chunks.ts';
import type { Logger } from '../../../platform/log.ts';
import { BatchQueue } from '../../../platform/postgres/batches/batch-queue.ts';
import type { Database, Queryable } from '../../../platform/postgres/database.ts';
import { runEachStep } from '../../../platform/postgres/each-step.ts';
import type { Clock, Timer } from '../../../platform/time/clock.ts';
import { MAX_TASK_TIMEOUT_MS } from '../../../protocol/limits.ts';
import { taskCapability } from '../../../protocol/tasks.ts';
import { recordFullServers, takeOverdue } from '../deadlines/deadline-store.ts';
import type { ReportSubject } from '../reports/report.ts';
import type { TaskSession, TaskSessions } from '../sessions.ts';
import { type TaskError, taskEnds } from '../store/task.ts';
import { ClaimProgress } from './claim-progress.ts';
import {
  type ClaimedAttempt,
  claimTasks,
  MAX_READ_BYTES,
  MAX_READ_TASKS,
  readBusyServers,
  readDispatches,
  resendTasks,
  type TaskToSend,
} from './claim-store.ts';
import { failedReads } from './failed-reads.ts';

interface SessionDispatchDeps {
  database: Database;
  sessions: TaskSessions;
  clock: Clock;
  log: Logger;
  config: { taskResendMs: number; taskOverdueMs: number };
  /** Ends an attempt that its agent cannot run. */
  fail: (subject: ReportSubject, error: TaskError) => void;
}

const MAX_SERVERS_PER_CLAIM = 500;
/** How many servers one statement checks for overdue and unaccepted tasks. */
const MAX_SERVERS_PER_POLL = 2_000;
/** Per slow poll; the next one begins with the rest. */
const MAX_RESEND_BATCHES = 20;
const CLAIM_LANES = 4;
/** Hints for thousands of servers arrive in several messages. */
const GATHER_MS = 5;
/** How often to look whether agents have read enough of what was sent. */
const FULL_PAUSE_MS = 50;

export class SessionDispatch {
  readonly #deps: SessionDispatchDeps;
  /** Servers to claim for. A hint during a server's claim causes another claim after it. */
  readonly #claims: BatchQueue<string>;
  /**
   * Claimed tasks that are read and sent next. One lane, so that a server gets them in the order of
   * its queue.
   */
  readonly #reads: BatchQueue<ClaimedAttempt>;
  /** Keys of the attempts in `#reads`. */
  readonly #unread = new Set<string>();
  /** Attempts that were sent before, so their agents may have them. */
  readonly #resends = new WeakSet<ClaimedAttempt>();
  /** Servers at their limit: their agents must accept or end tasks before more are claimed. */
  readonly #saturatedServers = new Set<string>();
  /**
   * One set for each claim in flight: the servers whose agents' reports were stored since the claim
   * began. The claim's answer may not include these reports.
   */
  readonly #storedMeanwhile = new Set<Set<string>>();
  readonly #progress: ClaimProgress;
  /** Unsent bytes of the sessions that were backed up at the last poll. */
  #unsentBytes = new Map<TaskSession, number>();
  /** Runs while agents have too much unread. */
  #fullTimer: Timer | undefined;
  #sent = 0;
  #resent = 0;

  constructor(deps: SessionDispatchDeps) {
    this.#deps = deps;
    this.#progress = new ClaimProgress(deps.clock, (serverUuids) => this.hintAll(serverUuids));
    this.#claims = new BatchQueue<string>({
      ...deps,
      what: 'claims of tasks',
      keyOf: (serverUuid) => serverUuid,
      join: (serverUuid) => serverUuid,
      maxBatch: MAX_SERVERS_PER_CLAIM,
      concurrency: CLAIM_LANES,
      // A claim marks a task as sent. Do not claim faster than tasks are read.
      mayBegin: () => this.#reads.size - this.#reads.setAside < MAX_READ_TASKS && this.#maySend(),
      work: (serverUuids, connection) => this.#claim(serverUuids, connection),
    });
    this.#reads = new BatchQueue<ClaimedAttempt>({
      ...deps,
      what: 'reads of claimed tasks',
      keyOf,
      maxBatch: MAX_READ_TASKS,
      maxBatchSize: MAX_READ_BYTES,
      sizeOf: ({ paramsBytes }) => paramsBytes,
      onEnded: () => this.#claims.trigger(),
      mayBegin: () => this.#maySend(),
      work: (claims, connection) => this.#readAndSend(claims, connection),
      ...failedReads<ClaimedAttempt>({
        claimOf: (claim) => claim,
        end: (claim) => this.#failUnread(claim),
        forget: (claim) => this.#unread.delete(keyOf(claim)),
        log: deps.log,
      }),
    });
  }

  /** This server may have something to claim or to cancel. */
  hint(serverUuid: string): void {
    this.hintAll([serverUuid]);
  }

  /** The same for several. Hints of one moment share their claims. */
  hintAll(serverUuids: readonly string[]): void {
    const { held = [], remote = [] } = Object.groupBy(serverUuids, (serverUuid) =>
      this.#deps.sessions.get(serverUuid) === undefined ? 'remote' : 'held',
    );
    for (const serverUuid of serverUuids) this.#saturatedServers.delete(serverUuid);
    // The next session begins without the pause of this one.
    this.#progress.answered(remote);
    this.#progress.wanted(held);
    this.#claims.addAll(held, serverUuids.length > 1 ? GATHER_MS : 0);
  }

  /** A report of these servers' agents is stored: they may have room again. */
  onStored(serverUuids: readonly string[]): void {
    for (const stored of this.#storedMeanwhile) for (const serverUuid of serverUuids) stored.add(serverUuid);
    this.hintAll(serverUuids.filter((serverUuid) => this.#saturatedServers.has(serverUuid)));
  }

  /** Servers with a session and without an answered claim since the last call but one. */
  endClaimPeriod(): string[] {
    return this.#progress.endPeriod().filter((one) => this.#deps.sessions.get(one) !== undefined);
  }

  /** @throws DatabaseUnavailableError, DatabaseBusyError */
  async poll(): Promise<void> {
    const { database, sessions: all } = this.#deps;
    const serverUuids = await readBusyServers(database, all.run());
    const sessions = serverUuids.flatMap((serverUuid) => all.get(serverUuid) ?? []);
    this.hintAll(serverUuids);
    await runEachStep(this.#stepsOfPoll(sessions));
  }

  async stop(): Promise<void> {
    await this.#claims.stop();
    await this.#reads.stop();
    this.#progress.stop();
    this.#fullTimer?.cancel();
  }

  stats(): { wanted: number; sent: number; resent: number } {
    return { wanted: this.#claims.size, sent: this.#sent, resent: this.#resent };
  }

  *#stepsOfPoll(sessions: readonly TaskSession[]): Generator<() => Promise<void>> {
    yield () => this.#noteBackedUp(sessions.filter(({ isBackedUp }) => isBackedUp));
    for (const some of chunksOf(sessions, MAX_SERVERS_PER_POLL)) {
      yield () => this.#cancelOverdue(some);
      yield () => this.#resend(some.filter(({ isBackedUp }) => !isBackedUp));
    }
  }

  /** What agents have not read is in this instance's memory. */
  #maySend(): boolean {
    const { clock, sessions } = this.#deps;
    if (!sessions.isFull) return true;
    this.#fullTimer ??= clock.after(FULL_PAUSE_MS, () => {
      this.#fullTimer = undefined;
      this.#reads.trigger();
      this.#claims.trigger();
    });
    return false;
  }

  async #claim(serverUuids: readonly string[], database: Queryable): Promise<undefined> {
    const all = serverUuids.flatMap((serverUuid) => this.#deps.sessions.get(serverUuid) ?? []);
    const { backedUp = [], sessions = [] } = Object.groupBy(all, ({ isBackedUp }) =>
      isBackedUp ? 'backedUp' : 'sessions',
    );
    const backedUpServers = backedUp.map(({ serverUuid }) => serverUuid);
    // Without a session, or over a backed-up link, nothing holds a claim up (`#noteBackedUp`).
    const sendable = new Set(sessions.map(({ serverUuid }) => serverUuid));
    this.#progress.answered(serverUuids.filter((serverUuid) => !sendable.has(serverUuid)));
    this.#progress.heldUp(backedUpServers);
    if (sessions.length === 0) return;
    const stored = new Set<string>();
    this.#storedMeanwhile.add(stored);
    const options = { sessions, resendMs: this.#deps.config.taskResendMs };
    const claiming = claimTasks(database, this.#deps.sessions.run(), options);
    const { claimed, cancels, saturated, retrySoon } = await claiming
      .catch((error: unknown) => this.#progress.failed(serverUuids, error))
      .finally(() => this.#storedMeanwhile.delete(stored));
    for (const serverUuid of saturated) this.#saturatedServers.add(serverUuid);
    this.onStored([...stored]);
    const held = new Set(retrySoon);
    for (const { serverUuid } of [...claimed, ...cancels]) held.delete(serverUuid);
    this.#progress.answered(serverUuids.filter((serverUuid) => !held.has(serverUuid)));
    this.#progress.heldUp(retrySoon);
    for (const { id, attempt, serverUuid } of cancels)
      this.#deps.sessions.get(serverUuid)?.send({ type: 'task_cancel', id, attempt });
    this.#read(claimed);
  }

  /** Leaves out what is being read already: over a slow network that takes longer than a poll. */
  #read(given: readonly ClaimedAttempt[]): void {
    const unknown = given.filter((one) => !this.#unread.has(keyOf(one)));
    for (const one of unknown) this.#unread.add(keyOf(one));
    this.#reads.addAll(unknown);
  }

  async #readAndSend(given: readonly ClaimedAttempt[], database: Queryable): Promise<undefined> {
    const orders = await readDispatches(database, given);
    for (const one of given) this.#unread.delete(keyOf(one));
    for (const order of orders) this.#send(order);
  }

  #failUnread(one: ClaimedAttempt): void {
    const { id, attempt, serverUuid } = one;
    this.#unread.delete(keyOf(one));
    this.#deps.fail({ id, attempt, serverUuid }, this.#resends.has(one) ? taskEnds.notReadAgain : taskEnds.notRead);
  }

  /**
   * If the session has ended meanwhile, nothing is sent. The server's next inventory settles the
   * task.
   */
  #send({ id, attempt, epoch, serverUuid, name, params, timeoutMs, requestId }: TaskToSend): void {
    const session = this.#deps.sessions.get(serverUuid);
    if (session?.epoch !== epoch) return;
    if (!session.capabilities.has(taskCapability(name))) {
      this.#deps.fail({ id, attempt, serverUuid }, taskEnds.unknownTask);
      return;
    }
    this.#sent += 1;
    session.send({
      type: 'task',
      id,
      attempt,
      epoch,
      name,
      params,
      timeoutMs: Math.min(timeoutMs, MAX_TASK_TIMEOUT_MS),
      ...(requestId === null ? {} : { requestId }),
    });
  }

  async #resend(sessions: readonly TaskSession[]): Promise<void> {
    for (let batches = 0; batches < MAX_RESEND_BATCHES; batches++) {
      const given = await resendTasks(this.#deps.database, sessions, this.#deps.config.taskResendMs);
      if (given.length === 0) return;
      this.#resent += given.length;
      for (const one of given) this.#resends.add(one);
      this.#read(given);
    }
  }

  /**
   * The time limit for the start of a queued task does not run while earlier tasks are sent over a
   * slow link. If no bytes were sent since the last poll, it runs.
   */
  async #noteBackedUp(sessions: readonly TaskSession[]): Promise<void> {
    const moving = sessions.filter((one) => one.unsentBytes < (this.#unsentBytes.get(one) ?? Number.POSITIVE_INFINITY));
    this.#unsentBytes = new Map(sessions.map((session) => [session, session.unsentBytes]));
    if (moving.length === 0) return;
    await recordFullServers(
      this.#deps.database,
      moving.map(({ serverUuid }) => serverUuid),
    );
  }

  /** Sends a cancel to an agent that has not reported the end of a task long after its timeout. */
  async #cancelOverdue(sessions: readonly TaskSession[]): Promise<void> {
    const { database, config, sessions: all } = this.#deps;
    const times = { overdueMs: config.taskOverdueMs, resendMs: config.taskResendMs };
    for (const { id, serverUuid, attempt } of await takeOverdue(database, sessions, times))
      all.get(serverUuid)?.send({ type: 'task_cancel', id, attempt });
  }
}

const keyOf = ({ id, attempt }: ClaimedAttempt): string => `${id} ${attempt}`;
