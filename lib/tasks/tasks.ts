/**
 * The tasks subsystem as the rest of the instance sees it: REST creates, reads, waits, cancels and follows; the agent
 * link hands in inventories, events and ends; whoever hears the bus for this run hands in hints. Any instance answers for
 * any task (law 2). Needs `taskMigrations` and the roster's table.
 */
import type { Bus } from '../bus/bus.ts';
import { type RunMessage, runTopic, TASK_ENDS_TOPIC, taskTopic } from '../bus/topics.ts';
import type { Config } from '../config.ts';
import type { CnapiError } from '../errors.ts';
import type { Logger } from '../log.ts';
import type { Database } from '../moray/database.ts';
import { type Clock, settlesWithin } from '../ports/clock.ts';
import type { Random } from '../ports/random.ts';
import { SlowPoll } from '../waits/slow-poll.ts';
import { Watches } from '../waits/watches.ts';
import { digestOf } from '../wire/canonical-json.ts';
import type { InventoryFrame, TaskEndFrame, TaskEventFrame } from '../wire/frames.ts';
import { taskCapability, taskKind } from '../wire/tasks.ts';
import { Dispatcher, type DispatcherStats } from './dispatcher.ts';
import type { TaskMessenger } from './messenger.ts';
import type { TaskSession, TaskSessions } from './sessions.ts';
import {
  DEFAULT_TASK_TIMEOUT_MS,
  type ServerTaskHistoryEntry,
  type Task,
  type TaskEvent,
  type TaskRequest,
  toServerHistoryEntry,
  toTask,
} from './task.ts';
import {
  IdempotencyConflictError,
  TaskEndedError,
  TaskNotCancellableError,
  TaskNotFoundError,
  TaskUnknownError,
  TicketNotActiveError,
  TicketOfAnotherServerError,
  TooManyTasksError,
} from './task-errors.ts';
import {
  type CreatedTask,
  cancelTask,
  createTask,
  deleteTasks,
  listTasks,
  type NewTask,
  readPositions,
  readTask,
  readTaskByKey,
  type TaskPosition,
} from './task-store.ts';
import { createTaskUnderTicket, type TicketStanding } from './ticketed-store.ts';
import { type FollowOptions, Waiters, type WaitOptions } from './waiters.ts';

export type { WaitOptions } from './waiters.ts';

export type TasksConfig = Pick<
  Config,
  'slowPollMs' | 'slowPollNoBusMs' | 'adoptGraceMs' | 'taskStartByMs' | 'taskResendMs' | 'taskOverdueMs'
>;

export interface TasksDeps {
  database: Database;
  bus: Bus;
  sessions: TaskSessions;
  /** Reaches servers with old agents; without it their tasks are left to other instances. */
  messenger?: TaskMessenger;
  clock: Clock;
  random: Random;
  log: Logger;
  config: TasksConfig;
  /** Waits and event streams at once. Default 10,000. */
  maxWaiters?: number;
}

export interface TaskStats extends DispatcherStats {
  waits: number;
  follows: number;
}

/** Statements that hang then are left to end with their connections. */
const STOPS_WITHIN_MS = 2_000;
/** One statement does it well within its time. */
const DELETE_BATCH = { tasks: 500, pieces: 20_000 };

export class Tasks {
  readonly #deps: TasksDeps;
  readonly #watches: Watches<TaskPosition>;
  readonly #waiters: Waiters;
  readonly #dispatcher: Dispatcher;
  readonly #slowPoll: SlowPoll;
  #stopping: Promise<void> | undefined;

  constructor(deps: TasksDeps) {
    this.#deps = deps;
    const { database, bus, clock, log, config, maxWaiters } = deps;
    this.#watches = new Watches<TaskPosition>({
      bus,
      clock,
      log,
      maxWatches: maxWaiters,
      what: 'task',
      topic: TASK_ENDS_TOPIC,
      eventsTopic: taskTopic,
      read: async (ids) => (await readPositions(database, ids)).map((position) => [position.id, position]),
      // The events of a standby that was behind begin to count anew below; an end is never a read that was overtaken.
      isBefore: (next, last) => !next.isEnded && next.lastSeq < last.lastSeq,
    });
    this.#waiters = new Waiters(database, this.#watches);
    this.#dispatcher = new Dispatcher({ ...deps, wake: ({ id, ended }) => this.#watches.wake(id, ended) });
    this.#slowPoll = new SlowPoll({ clock, bus, log, config, what: 'tasks', work: () => this.#poll() });
  }

  async start(): Promise<void> {
    this.#dispatcher.start();
    this.#slowPoll.start();
  }

  /** About to leave: hands nothing more to old agents. What it has handed over is counted in `stats().postsInFlight`. */
  retire(): void {
    this.#dispatcher.retire();
  }

  /** Ends the waits; stores what agents have reported, if the database takes it soon. After the sessions are closed. */
  stop(): Promise<void> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  /**
   * Accepts a task, durably. `created` is false when the idempotency key had brought it before. Whether the server is
   * running is the caller's to ask first. A ticket need not be active any more for a task that was made before.
   * @throws IdempotencyConflictError, TaskUnknownError, TooManyTasksError, TicketNotActiveError,
   * TicketOfAnotherServerError, DatabaseUnavailableError
   */
  async create(request: TaskRequest): Promise<{ id: string; created: boolean }> {
    const session = this.#deps.sessions.get(request.serverUuid);
    if (session?.capabilities.has(taskCapability(request.name)) === false) {
      throw new TaskUnknownError(request.serverUuid, request.name);
    }
    const task = toNewTask(request, this.#deps.random.uuid());
    const made =
      task.ticketUuid === undefined
        ? await createTask(this.#deps.database, task)
        : await this.#createUnderTicket(request, task, task.ticketUuid);
    if (made === undefined) throw new TooManyTasksError(request.serverUuid);
    if (made.requestHash !== task.requestHash)
      throw new IdempotencyConflictError(made.id, request.idempotencyKey ?? '');
    this.#tellAuthority(request.serverUuid, made.run);
    return { id: made.id, created: made.id === task.id };
  }

  /**
   * The task that an earlier request with this idempotency key brought, if there is one.
   * @throws IdempotencyConflictError, DatabaseUnavailableError
   */
  async known(request: TaskRequest): Promise<string | undefined> {
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
  async get(id: string): Promise<Task> {
    const row = await readTask(this.#deps.database, id);
    if (row === undefined) throw new TaskNotFoundError(id);
    return toTask(row);
  }

  /**
   * The task at its end, or as it is when the time is up. A failed task is no error: look at `status`. While the
   * database is away the wait goes on.
   * @throws TaskNotFoundError, TooManyWaitersError, WaitStoppedError, DatabaseUnavailableError, the signal's reason
   */
  async wait(id: string, options: WaitOptions): Promise<Task> {
    return toTask(await this.#waiters.wait(id, options));
  }

  /**
   * Asks for the end: a queued task ends at once, a claimed one when its agent says so.
   * @throws TaskNotFoundError, TaskEndedError, TaskNotCancellableError, DatabaseUnavailableError
   */
  async cancel(id: string): Promise<Task> {
    const cancelled = await cancelTask(this.#deps.database, id);
    if (cancelled === undefined) {
      const row = await readTask(this.#deps.database, id);
      if (row === undefined) throw new TaskNotFoundError(id);
      throw row.outcome === null ? new TaskNotCancellableError(id) : new TaskEndedError(id, row.outcome);
    }
    const { row, run } = cancelled;
    if (row.state === 'ended') this.#dispatcher.announce([{ id, ended: true }]);
    else this.#tellAuthority(row.server_uuid, run);
    return toTask(row);
  }

  /**
   * The events after `afterSeq` (0: all), then live ones; returns after `end`. One read of a page at a time, nothing
   * buffered for a slow reader. @throws TaskNotFoundError, TooManyWaitersError, WaitStoppedError,
   * DatabaseUnavailableError, the signal's reason
   */
  follow(id: string, afterSeq: number, options: FollowOptions = {}): AsyncIterable<TaskEvent> {
    return this.#waiters.follow(id, afterSeq, options);
  }

  /** The server's tasks, newest first. */
  async history(serverUuid: string, limit: number): Promise<ServerTaskHistoryEntry[]> {
    return (await listTasks(this.#deps.database, serverUuid, limit)).map(toServerHistoryEntry);
  }

  /** Deletes one batch of the tasks that ended more than `days` ago; returns how many went. Call it until none do. */
  deleteOlderThan(days: number): Promise<number> {
    return deleteTasks(this.#deps.database, days, DELETE_BATCH);
  }

  /** There may be queued work or a cancel for this server: the bus said so (RunMessage kind 'tasks'). */
  hint(serverUuid: string): void {
    this.#dispatcher.hint(serverUuid);
  }

  /** Hints may have been missed (a subscription stands again): reads everything at once. */
  pollSoon(): void {
    this.#slowPoll.soon();
  }

  /** The session has given its inventory, or gives it anew. */
  onInventory(session: TaskSession, frame: InventoryFrame): void {
    this.#dispatcher.onInventory(session, frame);
  }

  onTaskEvent(session: TaskSession, frame: TaskEventFrame): void {
    this.#dispatcher.onTaskEvent(session, frame);
  }

  onTaskEnd(session: TaskSession, frame: TaskEndFrame): void {
    this.#dispatcher.onTaskEnd(session, frame);
  }

  stats(): TaskStats {
    return { waits: this.#waiters.waits, follows: this.#waiters.follows, ...this.#dispatcher.stats() };
  }

  async #createUnderTicket(request: TaskRequest, task: NewTask, ticketUuid: string): Promise<CreatedTask | undefined> {
    const created = await createTaskUnderTicket(this.#deps.database, task);
    if (created.kind === 'made') return created;
    if (created.kind === 'full') return undefined;
    // Read after the refusal: an equal request may have made the task while this one waited for the ticket's row.
    const known = await this.known(request);
    if (known !== undefined) return { id: known, requestHash: task.requestHash, run: null };
    throw refusal(request.serverUuid, ticketUuid, created.ticket);
  }

  #tellAuthority(serverUuid: string, run: string | null): void {
    if (run === null) return this.#dispatcher.hintUnowned(serverUuid);
    this.#dispatcher.hint(serverUuid);
    if (run === this.#deps.sessions.run()) return;
    const message: RunMessage = { kind: 'tasks', server_uuid: serverUuid };
    this.#deps.bus.publish(runTopic(run), message);
  }

  async #poll(): Promise<void> {
    this.#watches.poll();
    await this.#dispatcher.poll();
  }

  async #stop(): Promise<void> {
    const { clock, log } = this.#deps;
    const parts = Promise.all([this.#slowPoll.stop(), this.#watches.stop(), this.#dispatcher.stop()]);
    if (!(await settlesWithin(clock, STOPS_WITHIN_MS, parts)))
      log.warn('tasks: stopped without an answer from the database');
  }
}

function refusal(serverUuid: string, ticketUuid: string, ticket: TicketStanding | undefined): CnapiError {
  if (ticket !== undefined && ![serverUuid, 'default'].includes(ticket.serverUuid))
    return new TicketOfAnotherServerError(ticketUuid, { ticketServer: ticket.serverUuid, taskServer: serverUuid });
  return new TicketNotActiveError(ticketUuid, ticket?.status);
}

function toNewTask(request: TaskRequest, id: string): NewTask {
  const { serverUuid, name, params, idempotencyKey, requestId, ticketUuid } = request;
  const timeoutMs = request.timeoutMs ?? DEFAULT_TASK_TIMEOUT_MS;
  const idempotent = request.idempotent ?? taskKind(name).idempotent;
  const asked = [name, params, timeoutMs, idempotent];
  const requestHash = digestOf(ticketUuid === undefined ? asked : [...asked, ticketUuid]);
  return { id, serverUuid, name, params, timeoutMs, idempotent, idempotencyKey, requestHash, requestId, ticketUuid };
}
