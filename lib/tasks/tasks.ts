/**
 * The tasks subsystem as the rest of the instance sees it: REST creates, reads, waits, cancels and follows; the agent
 * link hands in inventories, events and ends. Any instance answers for any task (law 2).
 */
import type { Bus } from '../bus/bus.ts';
import type { Config } from '../config.ts';
import type { Logger } from '../log.ts';
import type { Database } from '../moray/database.ts';
import type { Clock } from '../ports/clock.ts';
import type { Random } from '../ports/random.ts';
import type { InventoryFrame, TaskEndFrame, TaskEventFrame } from '../wire/frames.ts';
import type { TaskSession, TaskSessions } from './sessions.ts';
import type { ServerTaskHistoryEntry, Task, TaskEvent, TaskRequest } from './task.ts';

export type TasksConfig = Pick<
  Config,
  'slowPollMs' | 'slowPollNoBusMs' | 'taskStartByMs' | 'taskResendMs' | 'taskOverdueMs'
>;

export interface TasksDeps {
  database: Database;
  bus: Bus;
  sessions: TaskSessions;
  clock: Clock;
  random: Random;
  log: Logger;
  config: TasksConfig;
}

export interface WaitOptions {
  timeoutMs: number;
  /** Ends the wait with the signal's reason, for a caller that went away. */
  signal?: AbortSignal;
}

export interface TaskStats {
  waits: number;
  follows: number;
}

export class Tasks {
  constructor(_deps: TasksDeps) {}

  async start(): Promise<void> {}

  async stop(): Promise<void> {}

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  /**
   * Accepts a task, durably. `created` is false when the idempotency key had brought it before.
   * @throws IdempotencyConflictError, TaskUnknownError, TooManyTasksError, DatabaseUnavailableError
   */
  create(_request: TaskRequest): Promise<{ id: string; created: boolean }> {
    throw new Error('not yet');
  }

  /** @throws TaskNotFoundError, DatabaseUnavailableError */
  get(_id: string): Promise<Task> {
    throw new Error('not yet');
  }

  /**
   * The task at its end, or as it is when the time is up. A failed task is no error: look at `status`.
   * @throws TaskNotFoundError, TooManyWaitersError, TaskWaitStoppedError, DatabaseUnavailableError, the signal's reason
   */
  wait(_id: string, _options: WaitOptions): Promise<Task> {
    throw new Error('not yet');
  }

  /** create and wait, for synchronous callers. @throws as those do. */
  async run(request: TaskRequest, options: WaitOptions): Promise<Task> {
    const { id } = await this.create(request);
    return this.wait(id, options);
  }

  /** Asks for the end; a queued task ends at once. @throws TaskNotFoundError, TaskEndedError, DatabaseUnavailableError */
  cancel(_id: string): Promise<Task> {
    throw new Error('not yet');
  }

  /**
   * The events after `afterSeq` (0: all), then live ones; returns after `end`. One read of a page at a time, nothing
   * buffered for a slow reader. @throws TaskNotFoundError, TooManyWaitersError, TaskWaitStoppedError, the signal's reason
   */
  follow(_id: string, _afterSeq: number, _signal?: AbortSignal): AsyncIterable<TaskEvent> {
    throw new Error('not yet');
  }

  /** The server's tasks, newest first. */
  history(_serverUuid: string, _limit: number): Promise<ServerTaskHistoryEntry[]> {
    throw new Error('not yet');
  }

  /** Deletes tasks that ended more than `days` ago; returns how many. Several instances may do it at once. */
  deleteOlderThan(_days: number): Promise<number> {
    throw new Error('not yet');
  }

  /** There may be queued work or a cancel for this server: the bus said so (RunMessage kind 'tasks'). */
  hint(_serverUuid: string): void {}

  onInventory(_session: TaskSession, _frame: InventoryFrame): void {}

  onTaskEvent(_session: TaskSession, _frame: TaskEventFrame): void {}

  onTaskEnd(_session: TaskSession, _frame: TaskEndFrame): void {}

  stats(): TaskStats {
    return { waits: 0, follows: 0 };
  }
}
