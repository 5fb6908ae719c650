/**
 * Sends tasks to the agents whose sessions this instance holds, and writes their reports to the
 * database. Owns the claims, its part of the slow poll, and the recorder. Everything it does is
 * safe to do twice and on two instances at once: the roster's row or the attempt fences each
 * statement (docs/design.md section 6).
 *
 *     hint (created here, or by bus) ─┐
 *     inventory ── reconciler ────────┼──▶ claim for each ──▶ `task`, `task_cancel` to agents
 *     slow poll ──────────────────────┘
 *     slow poll ──▶ send unaccepted tasks again; sweep tasks that no agent takes or will report
 *     servers with legacy agents, hinted or in the slow poll ──▶ posts.ts
 *     task_event, task_end ──▶ recorder ──▶ task_ack; waiters are woken, here and by bus
 */
import type { Bus } from '../../platform/bus/bus.ts';
import { TASK_ENDS_TOPIC, taskTopic } from '../../platform/bus/topics.ts';
import type { Clock } from '../../platform/clock.ts';
import type { Logger } from '../../platform/log.ts';
import { BatchQueue } from '../../platform/postgres/batch-queue.ts';
import type { Database, Queryable } from '../../platform/postgres/database.ts';
import { publishChanges } from '../../platform/waits/changes.ts';
import type { InventoryFrame, TaskEndFrame, TaskEventFrame } from '../../protocol/frames.ts';
import { MAX_TASK_TIMEOUT_MS } from '../../protocol/limits.ts';
import { taskCapability } from '../../protocol/tasks.ts';
import {
  type ChangedTask,
  type ClaimedAttempt,
  claimTasks,
  type Order,
  readBusyServers,
  readDispatches,
  resendTasks,
} from './claim-store.ts';
import { DeadlineCounter } from './deadline-counter.ts';
import { advanceTicks, type SweepOptions, sweepTasks, takeOverdue } from './deadline-store.ts';
import { DelayedRetry } from './delayed-retry.ts';
import type { LegacyTaskSender } from './legacy-task-sender.ts';
import { type PostStats, Posts } from './posts.ts';
import { readInBatches } from './read-batches.ts';
import { Reconciler } from './reconciler.ts';
import { Recorder } from './recorder.ts';
import type { TaskSession, TaskSessions } from './sessions.ts';
import { taskEnds } from './task.ts';

interface DispatcherConfig {
  taskStartByMs: number;
  taskResendMs: number;
  taskOverdueMs: number;
  adoptGraceMs: number;
  slowPollMs: number;
}

export interface DispatcherDeps {
  database: Database;
  bus: Bus;
  sessions: TaskSessions;
  /** Reaches servers with legacy agents; without it other instances handle their tasks. */
  messenger?: LegacyTaskSender;
  clock: Clock;
  log: Logger;
  config: DispatcherConfig;
  /** A task changed: wakes those who wait for it here. */
  wake: (changed: ChangedTask) => void;
}

export interface DispatcherStats extends PostStats {
  /** Servers to claim for. */
  wanted: number;
  inventories: number;
  /** Bytes of reports on their way into the database. */
  reportBytes: number;
  droppedEvents: number;
  refusedEnds: number;
  sent: number;
  resent: number;
  swept: number;
}

const MAX_SERVERS_PER_CLAIM = 500;
/** How many servers one statement checks for overdue and unaccepted tasks. */
const MAX_SERVERS_PER_POLL = 2_000;
/** Per slow poll; the next one begins with the rest. */
const MAX_RESEND_BATCHES = 20;
/** A poll later than this is late: the process stood still, or the database was slow. */
const MAX_POLL_PERIODS = 3;
const MAX_SWEEP_BATCHES = 20;
const CLAIM_LANES = 4;

export class Dispatcher {
  readonly #deps: DispatcherDeps;
  readonly #recorder: Recorder;
  readonly #reconciler: Reconciler;
  readonly #posts: Posts | undefined;
  /** Servers to claim for. A hint during a server's claim causes another claim after it. */
  readonly #claims: BatchQueue<string>;
  /** Servers with a queue that must accept or end some tasks before they are given more. */
  readonly #full = new Set<string>();
  /**
   * For each claim in flight, the servers whose agents' reports were stored meanwhile. The claim's
   * answer may not include them.
   */
  readonly #storedMeanwhile = new Set<Set<string>>();
  readonly #again: DelayedRetry;
  /** Since when the database has answered every poll, on this process's clock. */
  #answersSince: number | undefined;
  readonly #ticks: DeadlineCounter;
  /**
   * When a task is queued, the counter may lag this much and then catch up at once. The lag is
   * added to the deadline, so no task is swept early.
   */
  readonly #tickLagMs: number;
  #sent = 0;
  #resent = 0;
  #swept = 0;

  constructor(deps: DispatcherDeps) {
    this.#deps = deps;
    const { database, clock, log, sessions } = deps;
    this.#tickLagMs = MAX_POLL_PERIODS * deps.config.slowPollMs;
    this.#ticks = new DeadlineCounter(this.#tickLagMs);
    const onChanged = (changed: readonly ChangedTask[]) => this.announce(changed);
    this.#recorder = new Recorder({
      database,
      clock,
      log,
      onChanged,
      onStored: (serverUuids) => this.#claimForFull(serverUuids),
    });
    this.#reconciler = new Reconciler({
      database,
      sessions,
      clock,
      log,
      onChanged,
      onSettled: (serverUuid) => this.hint(serverUuid),
    });
    this.#posts = deps.messenger && this.#createPosts(deps.messenger);
    this.#again = new DelayedRetry(clock, (serverUuid) => this.hint(serverUuid));
    this.#claims = new BatchQueue<string>({
      ...deps,
      what: 'claims of tasks',
      keyOf: (serverUuid) => serverUuid,
      join: (serverUuid) => serverUuid,
      maxBatch: MAX_SERVERS_PER_CLAIM,
      lanes: CLAIM_LANES,
      work: (serverUuids, connection) => this.#claim(serverUuids, connection),
    });
  }

  start(): void {
    this.#posts?.start();
  }

  /** Claims nothing more for legacy agents; posts in flight continue. */
  retire(): void {
    this.#posts?.retire();
  }

  /**
   * This server may have queued tasks, and no instance has authority for it: its agent may be a
   * legacy one.
   */
  hintUnowned(serverUuid: string): void {
    this.#posts?.hint(serverUuid);
  }

  /** This server may have something to claim or to cancel. */
  hint(serverUuid: string): void {
    this.#full.delete(serverUuid);
    if (this.#deps.sessions.get(serverUuid) === undefined) return;
    this.#claims.add(serverUuid);
  }

  onInventory(session: TaskSession, frame: InventoryFrame): void {
    this.#reconciler.add(session, frame);
  }

  onTaskEvent(session: TaskSession, frame: TaskEventFrame): void {
    this.#recorder.event(session, frame);
  }

  onTaskEnd(session: TaskSession, frame: TaskEndFrame): void {
    this.#recorder.end(session, frame);
  }

  /** Wakes those who wait for these tasks, on every instance. */
  announce(changed: readonly ChangedTask[]): void {
    const { bus, wake } = this.#deps;
    for (const task of changed) {
      wake(task);
      if (!task.ended) bus.publish(taskTopic(task.id), { id: task.id });
    }
    const ended = changed.flatMap((task) => (task.ended ? [task.id] : []));
    publishChanges(bus, TASK_ENDS_TOPIC, ended);
  }

  /** Does all work that a hint may have missed. @throws DatabaseUnavailableError */
  async poll(): Promise<void> {
    this.#posts?.poll();
    try {
      await this.#advanceTicks();
      await this.#claimAll();
      await this.#sweep();
    } catch (error) {
      this.#answersSince = undefined;
      this.#ticks.forget();
      throw error;
    }
  }

  async stop(): Promise<void> {
    await Promise.all([this.#claims.stop(), this.#reconciler.stop(), this.#posts?.stop()]);
    this.#again.stop();
    await this.#recorder.stop();
  }

  stats(): DispatcherStats {
    return {
      wanted: this.#claims.size,
      inventories: this.#reconciler.size,
      reportBytes: this.#recorder.size,
      droppedEvents: this.#recorder.droppedEvents,
      refusedEnds: this.#recorder.refusedEnds,
      sent: this.#sent,
      resent: this.#resent,
      swept: this.#swept,
      ...(this.#posts?.stats() ?? { postsInFlight: 0, posted: 0, postsLost: 0 }),
    };
  }

  #createPosts(messenger: LegacyTaskSender): Posts {
    return new Posts({
      ...this.#deps,
      messenger,
      run: () => this.#deps.sessions.run(),
      record: (subject, end, acknowledge) => this.#recorder.endOfPost(subject, end, acknowledge),
      onChanged: (changed) => this.announce(changed),
    });
  }

  async #claim(serverUuids: readonly string[], database: Queryable): Promise<undefined> {
    const sessions = serverUuids.flatMap((serverUuid) => this.#deps.sessions.get(serverUuid) ?? []);
    if (sessions.length === 0) return;
    const stored = new Set<string>();
    this.#storedMeanwhile.add(stored);
    const options = { sessions, resendMs: this.#deps.config.taskResendMs };
    const claiming = claimTasks(database, this.#deps.sessions.run(), options);
    const { given, cancels, full, again } = await claiming.finally(() => this.#storedMeanwhile.delete(stored));
    for (const serverUuid of full) this.#full.add(serverUuid);
    this.#claimForFull([...stored]);
    this.#again.add(again);
    for (const { id, attempt, server_uuid } of cancels)
      this.#deps.sessions.get(server_uuid)?.send({ type: 'task_cancel', id, attempt });
    await this.#sendAll(given);
  }

  /** The slow poll sends what cannot be read now: no agent has accepted it. */
  async #sendAll(given: readonly ClaimedAttempt[]): Promise<void> {
    const { database, log } = this.#deps;
    for await (const { read } of readInBatches(given, (batch) => readDispatches(database, batch), log))
      for (const order of read) this.#send(order);
  }

  /** A report of these servers' agents is stored: they may have room again. */
  #claimForFull(serverUuids: readonly string[]): void {
    for (const stored of this.#storedMeanwhile) for (const serverUuid of serverUuids) stored.add(serverUuid);
    for (const serverUuid of serverUuids) if (this.#full.has(serverUuid)) this.hint(serverUuid);
  }

  /**
   * If the session has ended meanwhile, nothing is sent. The server's next inventory settles the
   * task.
   */
  #send({ id, attempt, epoch, server_uuid: serverUuid, ...order }: Order): void {
    const { name, params } = order;
    const session = this.#deps.sessions.get(serverUuid);
    if (session?.epoch !== epoch) return;
    if (!session.capabilities.has(taskCapability(name))) {
      this.#recorder.fail({ id, attempt, serverUuid }, taskEnds.unknownTask);
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
      timeoutMs: Math.min(order.timeout_ms, MAX_TASK_TIMEOUT_MS),
      ...(order.req_id === null ? {} : { requestId: order.req_id }),
    });
  }

  async #resend(sessions: readonly TaskSession[]): Promise<void> {
    for (let batches = 0; batches < MAX_RESEND_BATCHES; batches++) {
      const given = await resendTasks(this.#deps.database, sessions, this.#deps.config.taskResendMs);
      if (given.length === 0) return;
      this.#resent += given.length;
      await this.#sendAll(given);
    }
  }

  /** The zone's time advances while any instance is healthy. */
  async #advanceTicks(): Promise<void> {
    const { clock, database } = this.#deps;
    const proposal = this.#ticks.propose(clock.now());
    const tick = await advanceTicks(database, proposal);
    this.#ticks.answered(proposal, tick, clock.now());
  }

  async #claimAll(): Promise<void> {
    const { database, sessions: all } = this.#deps;
    const serverUuids = await readBusyServers(database, all.run());
    const sessions = serverUuids.flatMap((serverUuid) => all.get(serverUuid) ?? []);
    for (const serverUuid of serverUuids) this.hint(serverUuid);
    for (let start = 0; start < sessions.length; start += MAX_SERVERS_PER_POLL) {
      const some = sessions.slice(start, start + MAX_SERVERS_PER_POLL);
      await this.#cancelOverdue(some);
      await this.#resend(some);
    }
  }

  /** Sends a cancel to an agent that has not reported the end of a task long after its timeout. */
  async #cancelOverdue(sessions: readonly TaskSession[]): Promise<void> {
    const { database, config, sessions: all } = this.#deps;
    const times = { overdueMs: config.taskOverdueMs, resendMs: config.taskResendMs };
    for (const { id, server_uuid, attempt } of await takeOverdue(database, sessions, times))
      all.get(server_uuid)?.send({ type: 'task_cancel', id, attempt });
  }

  /**
   * No agent could take or report anything while the database was unreachable, so waiting tasks get
   * their whole time again (law 4).
   */
  #sweepOptions(): SweepOptions {
    const { taskStartByMs, taskOverdueMs } = this.#deps.config;
    const now = this.#deps.clock.now();
    this.#answersSince ??= now;
    const answeredMs = now - this.#answersSince;
    return {
      startByMs: answeredMs < taskStartByMs ? undefined : taskStartByMs + this.#tickLagMs,
      overdueMs: answeredMs < taskOverdueMs ? undefined : taskOverdueMs,
      hasRoomForPosts: this.#posts?.hasRoom ?? true,
    };
  }

  async #sweep(): Promise<void> {
    const options = this.#sweepOptions();
    for (let batches = 0; batches < MAX_SWEEP_BATCHES; batches++) {
      const ids = await sweepTasks(this.#deps.database, options);
      if (ids.length === 0) return;
      this.#swept += ids.length;
      this.#deps.log.warn({ tasks: ids }, 'tasks ended that no server took or reported');
      this.announce(ids.map((id) => ({ id, ended: true })));
    }
  }
}
