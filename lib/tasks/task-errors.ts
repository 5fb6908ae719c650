/** What can go wrong with tasks in a way that a caller can act on. Thrown by the store, the waiters and the facade. */
import { CnapiError } from '../errors.ts';

/** There is no such task, or it was deleted after its 30 days. Text as the reference has it. */
export class TaskNotFoundError extends CnapiError {
  readonly taskId: string;
  constructor(taskId: string) {
    super('ResourceNotFound', 404, 'no such task found');
    this.taskId = taskId;
  }
}

/** A cancel came after the end. */
export class TaskEndedError extends CnapiError {
  readonly taskId: string;
  constructor(taskId: string, status: string) {
    super('TaskEnded', 409, `Task ${taskId} has ended already (${status}); there is nothing to cancel`);
    this.taskId = taskId;
  }
}

/** An old agent has it, and its protocol knows no way to end a task. */
export class TaskNotCancellableError extends CnapiError {
  readonly taskId: string;
  constructor(taskId: string) {
    const message = `Task ${taskId} was handed to an agent that speaks the old protocol, which cannot cancel; wait for its end`;
    super('TaskNotCancellable', 409, message);
    this.taskId = taskId;
  }
}

/** The same Idempotency-Key came with another request for the same server. */
export class IdempotencyConflictError extends CnapiError {
  readonly taskId: string;
  constructor(taskId: string, key: string) {
    const message = `Idempotency key '${key}' was used for task ${taskId} with another body; use a new key for a new task`;
    super('IdempotencyConflict', 409, message);
    this.taskId = taskId;
  }
}

/** The server's agent, connected here, does not have such a task. */
export class TaskUnknownError extends CnapiError {
  constructor(serverUuid: string, name: string) {
    super('UnknownTask', 409, `The agent of server ${serverUuid} does not know the task '${name}'`);
  }
}

/** The ticket that a task names does not hold the lock: it is queued yet, has ended, or is not there. */
export class TicketNotActiveError extends CnapiError {
  constructor(ticketUuid: string, status: string | undefined) {
    super('TicketNotActive', 409, `${standing(ticketUuid, status)}; the task was not accepted`);
  }
}

function standing(ticketUuid: string, status: string | undefined): string {
  if (status === undefined)
    return `There is no ticket ${ticketUuid} (any more): create one and wait until it is active`;
  if (status === 'queued') return `Ticket ${ticketUuid} is queued: wait until it is active`;
  return `Ticket ${ticketUuid} is ${status}: create another one and wait until that is active`;
}

/** Almost surely a mistake: that lock keeps nobody else from this server. */
export class TicketOfAnotherServerError extends CnapiError {
  constructor(ticketUuid: string, { ticketServer, taskServer }: { ticketServer: string; taskServer: string }) {
    const message = `Ticket ${ticketUuid} is of server ${ticketServer}, the task is for ${taskServer}`;
    super('TicketOfAnotherServer', 409, `${message}; name a ticket of that server, or of 'default'`);
  }
}

/** More tasks wait for this server than it could take in time anyway. */
export class TooManyTasksError extends CnapiError {
  constructor(serverUuid: string) {
    const message = `Too many tasks are queued for server ${serverUuid}; try again when some have been taken`;
    super('TooManyTasks', 503, message, { retryAfterSeconds: 5 });
  }
}
