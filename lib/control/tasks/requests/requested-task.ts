/**
 * Creates a task for a request, in the commit of the audit's record of that request. Called by
 * every route that creates a task.
 */
import { definedFields } from '../../../platform/defined-fields.ts';
import type { RequestContext } from '../../http/route.ts';
import type { TaskRequest } from '../store/task.ts';
import type { Tasks } from '../tasks.ts';

/** The request, as far as its task depends on it. */
export type TaskCaller = Pick<
  RequestContext<{ server_uuid: string; ticket_uuid?: string | undefined }>,
  'params' | 'requestId' | 'actor' | 'withAuditRecord' | 'setAuditedObject'
>;

/** The task, as far as it does not depend on who requests it. */
type RequestedTask = Pick<TaskRequest, 'name' | 'params' | 'timeoutMs' | 'idempotent' | 'idempotencyKey'>;

export function buildTaskRequest({ params, requestId, actor }: TaskCaller, task: RequestedTask): TaskRequest {
  const { server_uuid: serverUuid, ticket_uuid } = params;
  return { ...task, serverUuid, requestId, actor: actor.name, ...definedFields({ ticketUuid: ticket_uuid }) };
}

/**
 * Returns the id of the task. `object`: what the audit's record is about until the id is known.
 * @throws the errors of `Tasks.create`
 */
export async function createRequestedTask(
  caller: TaskCaller,
  tasks: Pick<Tasks, 'create'>,
  task: RequestedTask,
  object?: string,
): Promise<string> {
  const request = buildTaskRequest(caller, task);
  const { id } = await caller.withAuditRecord((record) => tasks.create({ ...request, record }), object);
  caller.setAuditedObject(id);
  return id;
}
