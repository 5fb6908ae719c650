/**
 * The tasks of all servers: their rows, and the parts that move them. REST creates, reads, waits
 * for, cancels and follows tasks. The agent link passes in inventories, events and ends, and the
 * bus subscriber of this run passes in hints. Any instance answers for any task (law 2).
 *
 *     hint (created here, or by bus) ─┐
 *     inventory ── reconciler ────────┼──▶ session dispatch
 *     slow poll ── sweeper ───────────┘
 *     servers without a session, hinted or in the slow poll ──▶ post dispatch
 *     slow poll ── sweeper ──▶ ends tasks that no agent takes or will report
 *     task_event, task_end ──▶ recorder ──▶ task_ack; waiters are woken, here and by bus
 */

import type { Bus } from '../../platform/bus/bus.ts';
import { BoundedMap } from '../../platform/limiting/bounded-map.ts';
import type { Logger } from '../../platform/log.ts';
import type { Database } from '../../platform/postgres/database.ts';
import type { Random } from '../../platform/random.ts';
import { type Clock, settlesWithin } from '../../platform/time/clock.ts';
import { SlowPoll } from '../../platform/waits/slow-poll.ts';
import { Watches } from '../../platform/waits/watches.ts';
import type { InventoryFrame, TaskEndFrame, TaskEventFrame } from '../../protocol/link/frames.ts';
import { taskCapability } from '../../protocol/tasks.ts';
import type { Config } from '../config.ts';
import type { PostDispatch, PostOutcomes } from './dispatch/post-dispatch.ts';
import { Reconciler } from './dispatch/reconciler.ts';
import { SessionDispatch } from './dispatch/session-dispatch.ts';
import { Recorder } from './reports/recorder.ts';
import type { TaskSession, TaskSessions } from './sessions.ts';
import type { ChangedTask } from './store/change-result.ts';
import { ticketRefusal, toNewTask } from './store/new-task.ts';
import type { TaskRequest, TaskRow } from './store/task.ts';
import {
  IdempotencyConflictError,
  orRefusal,
  TaskEndedError,
  TaskNotCancellableError,
  TaskNotFoundError,
  TaskUnknownError,
  TooManyTasksError,
} from './store/task-errors.ts';
import type { TaskFilter } from './store/task-list.ts';
import {
  countUnfinishedTasks,
  listAllTasks,
  readBusyAmong,
  readEndedAmong,
  readTaskTimes,
  type TaskListPage,
} from './store/task-list-store.ts';
import {
  type CreatedTask,
  cancelTask,
  createTask,
  deleteTasks,
  listTasks,
  MAX_QUEUED_MIB_PER_SERVER,
  MAX_QUEUED_PER_SERVER,
  type NewTask,
  readPositions,
  readTask,
  readTaskByKey,
  type ServerTaskCursor,
  type TaskChunk,
  type TaskPosition,
} from './store/task-store.ts';
import { createTaskUnderTicket } from './store/ticketed-store.ts';
import { Sweeper } from './sweeper.ts';
import {
  publishChangedTasks,
  publishTaskHints,
  type ServerToNotify,
  TASK_ENDS_TOPIC,
  taskTopic,
} from './task-topics.ts';
import { type FollowOptions, Waiters, type WaitOptions } from './waiters.ts';

export type TasksConfig = Pick<
  Config,
  'slowPollMs' | 'slowPollNoBusMs' | 'taskStartByMs' | 'taskResendMs' | 'taskOverdueMs'
>;

interface TasksDeps {
  database: Database;
  bus: Bus;
  sessions: TaskSessions;
  /** Creates what sends tasks to servers without a session. */
  createPostDispatch: (outcomes: PostOutcomes) => PostDispatch;
  clock: Clock;
  random: Random;
  log: Logger;
  config: TasksConfig;
  /** Maximum of concurrent waits and event streams. Default 10,000. */
  maxWaiters?: number;
}

export type TaskStats = ReturnType<Tasks['stats']>;

/** The ends whose times the metrics read next. */
const MAX_RECENT = 1_000;
const QUEUE_QUOTA = { tasks: MAX_QUEUED_PER_SERVER, mib: MAX_QUEUED_MIB_PER_SERVER };

/** Statements that still run then end with their connections. */
const STOPS_WITHIN_MS = 2_000;
/** Half of this time: claims and inventories must leave time to store the ends of tasks. */
const CLAIMS_STOP_WITHIN_MS = STOPS_WITHIN_MS / 2;
/** One statement deletes this much well within its time limit. */
const DELETE_BATCH = { tasks: 500, pieces: 20_000 };

export class Tasks {
  readonly #deps: TasksDeps;
  readonly #waiters: Waiters;
  readonly #recorder: Recorder;
  readonly #reconciler: Reconciler;
  readonly #sessionDispatch: SessionDispatch;
  readonly #postDispatch: PostDispatch;
  readonly #sweeper: Sweeper;
  readonly #watches: Watches<TaskPosition>;
  readonly #slowPoll: SlowPoll;
  readonly #recentEnds = new BoundedMap<string, true>(MAX_RECENT);
  #stopping: Promise<void> | undefined;
  #refusedCreates = 0;

  constructor(deps: TasksDeps) {
    this.#deps = deps;
    const { database, bus, clock, log, config, maxWaiters } = deps;
    this.#watches = new Watches<TaskPosition>({
      database,
      bus,
      clock,
      log,
      maxWatches: maxWaiters,
      what: 'task',
      topic: TASK_ENDS_TOPIC,
      eventsTopic: taskTopic,
      read: async (connection, ids) =>
        (await readPositions(connection, ids)).map((position) => [position.id, position]),
      // After a failover to a standby that lagged behind, event numbers may start again at a lower
      // number. A read with an end is always the newest.
      isBefore: (next, last) => !next.isEnded && next.lastSeq < last.lastSeq,
    });
    this.#waiters = new Waiters(database, this.#watches);
    const onChanged = (changed: readonly ChangedTask[]) => this.#announce(changed);
    this.#recorder = new Recorder({
      ...deps,
      onChanged,
      onStored: (serverUuids) => this.#sessionDispatch.onStored(serverUuids),
    });
    const sessionDispatch = new SessionDispatch({
      ...deps,
      fail: (subject, error) => this.#recorder.fail(subject, error),
    });
    const postDispatch = deps.createPostDispatch({
      record: (subject, end, acknowledge) => this.#recorder.endOfPost(subject, end, acknowledge),
      onChanged,
    });
    this.#sessionDispatch = sessionDispatch;
    this.#postDispatch = postDispatch;
    this.#reconciler = new Reconciler({
      ...deps,
      onChanged,
      onSettled: (serverUuid) => sessionDispatch.hint(serverUuid),
    });
    this.#sweeper = new Sweeper({ ...deps, sessionDispatch, postDispatch, onChanged });
    this.#slowPoll = new SlowPoll({ clock, bus, log, config, what: 'tasks', work: () => this.#poll() });
  }

  async start(): Promise<void> {
    this.#postDispatch.start();
    this.#slowPoll.start();
  }

  /**
   * Ends the waits, and stores agents' reports if the database accepts them soon. Call it after the
   * sessions are closed.
   */
  stop(): Promise<void> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  /**
   * Accepts a task durably. `created` is false if the idempotency key had created it before. The
   * caller checks first that the server is running. A task that exists already does not need its
   * ticket to be active.
   * @throws BadSecretParamsError, IdempotencyConflictError, TaskUnknownError, TooManyTasksError,
   * TicketNotActiveError, TicketOfAnotherServerError, DatabaseUnavailableError
   */
  async create(request: TaskRequest): Promise<{ id: string; created: boolean }> {
    const session = this.#deps.sessions.get(request.serverUuid);
    if (session?.capabilities.has(taskCapability(request.name)) === false) {
      throw new TaskUnknownError(request.serverUuid, request.name);
    }
    const task = toNewTask(request, this.#deps.random.uuid());
    const creation =
      task.ticketUuid === undefined
        ? createTask(this.#deps.database, task)
        : this.#createUnderTicket(request, task, task.ticketUuid);
    const made = await creation.catch((error: unknown) => {
      throw orRefusal(error);
    });
    if (made === undefined) {
      this.#refusedCreates += 1;
      throw new TooManyTasksError(request.serverUuid, QUEUE_QUOTA);
    }
    if (made.requestHash !== task.requestHash)
      throw new IdempotencyConflictError(made.id, request.idempotencyKey ?? '');
    this.notifyAuthorities([{ serverUuid: request.serverUuid, run: made.run }]);
    return { id: made.id, created: made.id === task.id };
  }

  /**
   * The task that an earlier request with this idempotency key created, if there is one.
   * @throws IdempotencyConflictError, DatabaseUnavailableError
   */
  async findByIdempotencyKey(request: TaskRequest): Promise<string | undefined> {
    const { serverUuid, idempotencyKey } = request;
    if (idempotencyKey === undefined) return undefined;
    const known = await readTaskByKey(this.#deps.database, serverUuid, idempotencyKey);
    if (known === undefined) return undefined;
    if (known.requestHash !== toNewTask(request, known.id).requestHash) {
      throw new IdempotencyConflictError(known.id, idempotencyKey);
    }
    return known.id;
  }

  /** @throws TaskNotFoundError, DatabaseUnavailableError */
  async get(id: string): Promise<TaskRow> {
    const row = await readTask(this.#deps.database, id);
    if (row === undefined) throw new TaskNotFoundError(id);
    return row;
  }

  /** Waits for the end of a task, as `Waiters.wait` says. */
  wait(id: string, options: WaitOptions): Promise<TaskRow> {
    return this.#waiters.wait(id, options);
  }

  /** Follows the events of a task, as `Waiters.follow` says. */
  follow(id: string, after: number, options?: FollowOptions): ReturnType<Waiters['follow']> {
    return this.#waiters.follow(id, after, options);
  }

  /**
   * Requests the end: a queued task ends immediately, a claimed one when its agent reports the end.
   * @throws TaskNotFoundError, TaskEndedError, TaskNotCancellableError, DatabaseUnavailableError
   */
  async cancel(id: string): Promise<TaskRow> {
    const cancelled = await cancelTask(this.#deps.database, id);
    if (cancelled?.isEnded) this.#announce([{ id, ended: true }]);
    else if (cancelled !== undefined) this.notifyAuthorities([cancelled]);
    const row = await readTask(this.#deps.database, id);
    if (row === undefined) throw new TaskNotFoundError(id);
    if (cancelled !== undefined) return row;
    throw row.outcome === null ? new TaskNotCancellableError(id) : new TaskEndedError(id, row.outcome);
  }

  /**
   * Tasks of all servers, newest first, page by page: narrow rows, and a bounded number of rows
   * read.
   */
  list(filter: TaskFilter): Promise<TaskListPage> {
    return listAllTasks(this.#deps.database, filter);
  }

  /** Returns the servers that have an unfinished task. */
  async busyAmong(serverUuids: readonly string[]): Promise<ReadonlySet<string>> {
    return new Set(serverUuids.length === 0 ? [] : await readBusyAmong(this.#deps.database, serverUuids));
  }

  /** Returns the tasks that have ended, or whose record was deleted. */
  async endedAmong(ids: readonly string[]): Promise<string[]> {
    return ids.length === 0 ? [] : readEndedAmong(this.#deps.database, ids);
  }

  /** How many tasks of this server have not ended; counts no further than 1,000. */
  unfinished(serverUuid: string): Promise<number> {
    return countUnfinishedTasks(this.#deps.database, serverUuid);
  }

  /**
   * Times in seconds of the newest tasks whose ends this instance has announced since the last
   * call, each once.
   */
  async recentTimes(): Promise<{ wait: number | null; run: number | null }[]> {
    const ids = [...this.#recentEnds.keys()];
    this.#recentEnds.clear();
    return ids.length === 0 ? [] : readTaskTimes(this.#deps.database, ids);
  }

  /** The server's tasks, newest first, one part at a time; the next part starts at `next`. */
  history(serverUuid: string, size: { rows: number; bytes: number }, after?: ServerTaskCursor): Promise<TaskChunk> {
    return listTasks(this.#deps.database, serverUuid, size, after);
  }

  /**
   * Deletes one batch of the tasks that ended more than `days` ago; returns how many. Call it until
   * it returns 0.
   */
  deleteOlderThan(days: number): Promise<number> {
    return deleteTasks(this.#deps.database, days, DELETE_BATCH);
  }

  /** Claims new work for those of these servers that have a session on this instance. */
  hintSessions(serverUuids: readonly string[]): void {
    this.#sessionDispatch.hintAll(serverUuids);
  }

  /** A session began: the agent says which tasks it has. */
  onInventory(session: TaskSession, frame: InventoryFrame): void {
    this.#reconciler.add(session, frame);
  }

  onTaskEvent(session: TaskSession, frame: TaskEventFrame): void {
    this.#recorder.event(session, frame);
  }

  onTaskEnd(session: TaskSession, frame: TaskEndFrame): void {
    this.#recorder.end(session, frame);
  }

  /** Posts no more tasks to servers without a session; posts in flight continue. */
  stopPosting(): void {
    this.#postDispatch.stopClaiming();
  }

  /** Tasks of these servers were created, or are to be cancelled. */
  notifyAuthorities(servers: readonly ServerToNotify[]): void {
    for (const { serverUuid, run } of servers) if (run === null) this.#postDispatch.hint(serverUuid);
    // A session may have moved here since its run was read.
    this.hintSessions(servers.flatMap(({ serverUuid, run }) => (run === null ? [] : [serverUuid])));
    publishTaskHints(this.#deps.bus, servers, this.#deps.sessions.run());
  }

  /** Hints may have been missed (a subscription was renewed): reads everything immediately. */
  trigger(): void {
    this.#slowPoll.trigger();
  }

  stats() {
    const { waits, follows } = this.#waiters;
    return {
      ...this.#sessionDispatch.stats(),
      inventories: this.#reconciler.size,
      /** Bytes of reports on their way into the database. */
      reportBytes: this.#recorder.size,
      droppedEvents: this.#recorder.droppedEvents,
      refusedEnds: this.#recorder.refusedEnds,
      swept: this.#sweeper.swept,
      waits,
      follows,
      /** Tasks refused because the queue of their server was full. */
      refusedCreates: this.#refusedCreates,
      ...this.#postDispatch.stats(),
    };
  }

  async #createUnderTicket(request: TaskRequest, task: NewTask, ticketUuid: string): Promise<CreatedTask | undefined> {
    const created = await createTaskUnderTicket(this.#deps.database, task);
    if (created.kind === 'made') return created;
    if (created.kind === 'full') return undefined;
    // Read after the refusal: an identical request may have created the task while this one waited
    // for the ticket's row.
    const known = await this.findByIdempotencyKey(request);
    if (known !== undefined) return { id: known, requestHash: task.requestHash, run: null };
    throw ticketRefusal(request.serverUuid, ticketUuid, created.ticket);
  }

  /** Wakes the callers that wait for these tasks, on every instance. */
  #announce(changed: readonly ChangedTask[]): void {
    for (const { id, ended } of changed) {
      if (ended) this.#recentEnds.set(id, true);
      this.#watches.wake(id, ended);
    }
    publishChangedTasks(this.#deps.bus, changed);
  }

  async #poll(): Promise<void> {
    this.#watches.poll();
    await this.#sweeper.poll();
  }

  async #stop(): Promise<void> {
    const { clock, log } = this.#deps;
    const parts = Promise.all([this.#slowPoll.stop(), this.#watches.stop(), this.#stopParts()]);
    if (!(await settlesWithin(clock, STOPS_WITHIN_MS, parts)))
      log.warn('tasks: stopped without an answer from the database');
  }

  async #stopParts(): Promise<void> {
    const claims = Promise.all([this.#sessionDispatch.stop(), this.#reconciler.stop(), this.#postDispatch.stop()]);
    await settlesWithin(this.#deps.clock, CLAIMS_STOP_WITHIN_MS, claims);
    await this.#recorder.stop();
  }
}
