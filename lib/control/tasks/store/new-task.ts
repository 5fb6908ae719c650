/**
 * The task that a request asks for, as it is stored, and why its ticket does not allow it. Pure.
 */
import type { CnapiError } from '../../../platform/errors.ts';
import { digestOf } from '../../../protocol/json/canonical-json.ts';
import { hasSecrets, maskParams, reasonNotMaskable, withSecretUrl } from '../../../protocol/secret-params.ts';
import { taskKind } from '../../../protocol/tasks.ts';
import { DEFAULT_TASK_TIMEOUT_MS, type TaskRequest } from './task.ts';
import { BadSecretParamsError, TicketNotActiveError, TicketOfAnotherServerError } from './task-errors.ts';
import { summarizeParams } from './task-list.ts';
import type { NewTask } from './task-store.ts';
import type { TicketCheck } from './ticketed-store.ts';

export function ticketRefusal(serverUuid: string, ticketUuid: string, ticket: TicketCheck | undefined): CnapiError {
  if (ticket !== undefined && ![serverUuid, 'default'].includes(ticket.serverUuid))
    return new TicketOfAnotherServerError(ticketUuid, { ticketServer: ticket.serverUuid, taskServer: serverUuid });
  return new TicketNotActiveError(ticketUuid, ticket?.status);
}

/** @throws BadSecretParamsError */
export function toNewTask(request: TaskRequest, id: string): NewTask {
  const { serverUuid, name, idempotencyKey, requestId, actor, ticketUuid, record } = request;
  const params = withSecretUrl(name, request.params);
  const reason = reasonNotMaskable(params);
  if (reason !== undefined) throw new BadSecretParamsError(reason);
  const shownParams = maskParams(params);
  const maskedParams = hasSecrets(params) ? shownParams : undefined;
  const timeoutMs = request.timeoutMs ?? DEFAULT_TASK_TIMEOUT_MS;
  const idempotent = request.idempotent ?? taskKind(name).idempotent;
  // The hash is stored, so it is computed from the masked parameters: nobody can use it to test
  // guesses of a secret.
  const asked = [name, shownParams, timeoutMs, idempotent];
  const requestHash = digestOf(ticketUuid === undefined ? asked : [...asked, ticketUuid]);
  const about = { requestId, actor, summary: summarizeParams(name, shownParams) };
  const identity = { id, serverUuid, name, requestHash, ticketUuid };
  return { ...identity, ...about, params, maskedParams, timeoutMs, idempotent, idempotencyKey, record };
}
