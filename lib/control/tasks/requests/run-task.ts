/**
 * Runs a task for a route that answers with its result. Used by the synchronous routes of servers
 * and VMs.
 */

import type { z } from 'zod';
import { CnapiError } from '../../../platform/errors.ts';
import { MAX_WAIT_SECONDS } from '../../../protocol/api/contract/rules.ts';
import type { LegacyTaskName, TaskName } from '../../../protocol/task-name.ts';
import { TokenEndedError } from '../../access/access-errors.ts';
import type { RequestContext } from '../../http/route.ts';
import { endError, type TaskRow } from '../store/task.ts';
import type { Tasks } from '../tasks.ts';
import { buildTaskRequest, createRequestedTask } from './requested-task.ts';

export type RunContext = RequestContext<{ server_uuid: string; ticket_uuid?: string | undefined }>;

interface TaskToRun<Result> {
  name: TaskName | LegacyTaskName;
  params: Record<string, unknown>;
  /** What the agent must answer with. */
  result: z.ZodType<Result>;
  /** How long the task may run and the request waits; 3600 seconds when absent. */
  seconds?: number;
  /**
   * A question that precedes the change of the request: the record of the audit belongs to the
   * change.
   */
  precedesChange?: boolean;
}

/**
 * A synchronous route's task failed, did not end in time, or has a wrong result: 500, with Triton's
 * text.
 */
export class TaskRunError extends CnapiError {
  /** The code of the task's error, if it failed. */
  readonly taskCode: string | undefined;

  constructor(message: string, taskCode?: string) {
    super('InternalError', 500, message);
    this.taskCode = taskCode;
  }
}

/**
 * A synchronous route ends its wait while its task runs. Do not retry: that would run the task
 * twice.
 */
class TaskContinuesError extends CnapiError {
  constructor(id: string) {
    const message = `This instance is stopping, task ${id} continues; wait for it at another instance, at /tasks/${id}/wait`;
    super('ServiceUnavailable', 503, message);
  }
}

export interface RunTaskDeps {
  tasks: Pick<Tasks, 'create' | 'wait'>;
  /** Aborts when this instance leaves and every wait must be answered. */
  instanceLeaving: AbortSignal;
}

/**
 * Runs a task to its end and returns its result. Its request is in the audit if the contract of the
 * route says that it changes something (`changesSomething`). @throws TaskRunError if it failed,
 * did not end in time or has a wrong result, TaskContinuesError, TokenEndedError
 */
export async function runTask<Result>(
  { tasks, instanceLeaving: endSignal }: RunTaskDeps,
  context: RunContext,
  { name, params, result, seconds, precedesChange = false }: TaskToRun<Result>,
): Promise<Result> {
  const { signal } = context;
  const toRun = { name, params, ...(seconds !== undefined && { timeoutMs: seconds * 1000 }) };
  const id = precedesChange
    ? (await tasks.create(buildTaskRequest(context, toRun))).id
    : await createRequestedTask(context, tasks, toRun);
  const timeoutMs = (seconds ?? MAX_WAIT_SECONDS) * 1000;
  const waiting = tasks.wait(id, { timeoutMs, signal, endSignal });
  const task = await waiting.catch((error: unknown) => {
    if (signal.reason instanceof TokenEndedError) throw new TokenEndedError(id);
    throw signal.aborted ? new TaskContinuesError(id) : error;
  });
  if (task.outcome === null && endSignal.aborted) throw new TaskContinuesError(id);
  if (task.outcome === null) throw new TaskRunError(`Time-out reached waiting for ${name} request to return`);
  if (task.outcome === 'complete') return parseResult(result, task);
  const error = endError(task);
  throw new TaskRunError(error?.message ?? 'no error given', error?.code);
}

/** @throws TaskRunError if the agent, which may be any program, answers with something else */
function parseResult<Result>(schema: z.ZodType<Result>, { name, result }: Pick<TaskRow, 'name' | 'result'>): Result {
  const { success, data, error } = schema.safeParse(result ?? {});
  if (success) return data;
  const [{ path, message } = { path: [], message: '' }] = error.issues;
  const field = path.length === 0 ? '' : `${path.join('.')}: `;
  throw new TaskRunError(`the agent answered ${name} with a wrong result: ${field}${message}`);
}
