/** What a caller receives when a task is refused: the code, the status, and advice. */
import t from 'tap';
import {
  BadSecretParamsError,
  IdempotencyConflictError,
  TaskEndedError,
  TaskNotCancellableError,
  TaskNotFoundError,
  TaskUnknownError,
  TicketNotActiveError,
  TicketOfAnotherServerError,
  TooManyTasksError,
} from '../../../../lib/control/tasks/store/task-errors.ts';
import type { CnapiError } from '../../../../lib/platform/errors.ts';

const table: { error: CnapiError; code: string; statusCode: number; message: RegExp; taskId?: string }[] = [
  {
    error: new TaskNotFoundError('x'),
    ...{ code: 'ResourceNotFound', statusCode: 404, message: /^no such task found$/, taskId: 'x' },
  },
  {
    error: new TaskEndedError('x', 'complete'),
    ...{ code: 'TaskEnded', statusCode: 409, message: /Task x has ended already \(complete\)/, taskId: 'x' },
  },
  {
    error: new TaskNotCancellableError('x'),
    ...{ code: 'TaskNotCancellable', statusCode: 409, message: /Task x .* wait for its end/, taskId: 'x' },
  },
  {
    error: new IdempotencyConflictError('x', 'k'),
    ...{ code: 'IdempotencyConflict', statusCode: 409, message: /'k' was used for task x /, taskId: 'x' },
  },
  {
    error: new BadSecretParamsError('is not an object'),
    ...{ code: 'InvalidParameters', statusCode: 400, message: /failed validation/ },
  },
  {
    error: new TaskUnknownError('a', 'nop'),
    ...{ code: 'UnknownTask', statusCode: 409, message: /server a does not know the task 'nop'/ },
  },
  {
    error: new TicketNotActiveError('k', undefined),
    ...{ code: 'TicketNotActive', statusCode: 409, message: /no ticket k .*create one.*the task was not accepted/ },
  },
  {
    error: new TicketNotActiveError('k', 'queued'),
    ...{ code: 'TicketNotActive', statusCode: 409, message: /Ticket k is queued: wait/ },
  },
  {
    error: new TicketNotActiveError('k', 'expired'),
    ...{ code: 'TicketNotActive', statusCode: 409, message: /Ticket k is expired: create another/ },
  },
  {
    error: new TicketOfAnotherServerError('k', { ticketServer: 'a', taskServer: 'b' }),
    ...{ code: 'TicketOfAnotherServer', statusCode: 409, message: /of server a, the task is for b/ },
  },
];
for (const { error, ...answer } of table) t.match(error, answer, error.constructor.name);

t.same(new BadSecretParamsError('is not an object').errors, [
  { field: 'secret_params', code: 'Invalid', message: 'value is not an object' },
]);
t.match(
  new TooManyTasksError('a', { tasks: 3, mib: 7 }),
  { code: 'TooManyTasks', statusCode: 503, message: /server a: .* 3 tasks and 7 MiB/, retryAfterSeconds: 5 },
  'a full queue says when to come again',
);
