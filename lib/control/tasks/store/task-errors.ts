/** Task errors that a caller can act on. Thrown by the store, the waiters and `Tasks`. */
import { CnapiError } from '../../../platform/errors.ts';
import { sqlStateOf } from '../../../platform/postgres/database.ts';

/** The task does not exist, or it was deleted after its 30 days. The text is Triton's. */
export class TaskNotFoundError extends CnapiError {
  readonly taskId: string;
  constructor(taskId: string) {
    super('ResourceNotFound', 404, 'no such task found');
    this.taskId = taskId;
  }
}

/** The task ended before the cancel arrived. */
export class TaskEndedError extends CnapiError {
  readonly taskId: string;
  constructor(taskId: string, status: string) {
    super('TaskEnded', 409, `Task ${taskId} has ended already (${status}); there is nothing to cancel`);
    this.taskId = taskId;
  }
}

/** The task was posted to a legacy agent, whose protocol cannot end a task. */
export class TaskNotCancellableError extends CnapiError {
  readonly taskId: string;
  constructor(taskId: string) {
    const message = `Task ${taskId} was handed to an agent that speaks the old protocol, which cannot cancel; wait for its end`;
    super('TaskNotCancellable', 409, message);
    this.taskId = taskId;
  }
}

/** The Idempotency-Key was already used for this server with another request. */
export class IdempotencyConflictError extends CnapiError {
  readonly taskId: string;
  constructor(taskId: string, key: string) {
    const message = `Idempotency key '${key}' was used for task ${taskId} with another body; use a new key for a new task`;
    super('IdempotencyConflict', 409, message);
    this.taskId = taskId;
  }
}

/** The params name secrets that they do not contain, or contain in a wrong form. */
export class BadSecretParamsError extends CnapiError {
  constructor(reason: string) {
    const message = `value ${reason}`;
    super('InvalidParameters', 400, 'Request parameters failed validation', {
      errors: [{ field: 'secret_params', code: 'Invalid', message }],
    });
  }
}

/** The server's agent is connected here and does not support this task. */
export class TaskUnknownError extends CnapiError {
  constructor(serverUuid: string, name: string) {
    super('UnknownTask', 409, `The agent of server ${serverUuid} does not know the task '${name}'`);
  }
}

/**
 * The ticket that a task names does not hold the lock: it is still queued, has ended, or does not
 * exist.
 */
export class TicketNotActiveError extends CnapiError {
  constructor(ticketUuid: string, status: string | undefined) {
    super('TicketNotActive', 409, `${reasonNotActive(ticketUuid, status)}; the task was not accepted`);
  }
}

function reasonNotActive(ticketUuid: string, status: string | undefined): string {
  if (status === undefined)
    return `There is no ticket ${ticketUuid} (any more): create one and wait until it is active`;
  if (status === 'queued') return `Ticket ${ticketUuid} is queued: wait until it is active`;
  return `Ticket ${ticketUuid} is ${status}: create another one and wait until that is active`;
}

/** Almost certainly a mistake: that lock does not protect this server. */
export class TicketOfAnotherServerError extends CnapiError {
  constructor(ticketUuid: string, { ticketServer, taskServer }: { ticketServer: string; taskServer: string }) {
    const message = `Ticket ${ticketUuid} is of server ${ticketServer}, the task is for ${taskServer}`;
    super('TicketOfAnotherServer', 409, `${message}; name a ticket of that server, or of 'default'`);
  }
}

interface QueueQuota {
  tasks: number;
  mib: number;
}

/**
 * The server's queue has more tasks than the server could take in time, or their params take too
 * much room.
 */
export class TooManyTasksError extends CnapiError {
  constructor(serverUuid: string, { tasks, mib }: QueueQuota) {
    const quota = `the queue of a server holds ${tasks} tasks and ${mib} MiB of their parameters`;
    const message = `Too many tasks are queued for server ${serverUuid}: ${quota}; try again when some have been taken`;
    super('TooManyTasks', 503, message, { retryAfterSeconds: 5 });
  }
}

/**
 * The state in which a trigger of the database refuses a task; the hint of the error is the code.
 */
const REFUSED_STATE = 'CN409';

/**
 * Another noun refuses the task, by a trigger in the statement that creates it: a VM with this uuid
 * exists. Other errors are returned unchanged.
 */
export function orRefusal(error: unknown): unknown {
  if (sqlStateOf(error) !== REFUSED_STATE) return error;
  const { hint, message } = error as { hint?: string; message: string };
  return new CnapiError(hint ?? 'InvalidArgument', 409, message, { cause: error });
}
