/**
 * Asks the agent of a server about a VM, by a task that the request waits for. Called by the routes
 * of VMs.
 */

import { z } from 'zod';
import { CnapiError } from '../../platform/errors.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import type { LegacyTaskName, TaskName } from '../../protocol/task-name.ts';
import { type RunContext, type RunTaskDeps, runTask, TaskRunError } from '../tasks/requests/run-task.ts';
import { VmNotFoundError } from './vm-registry.ts';

export interface VmQuery {
  task: TaskName | LegacyTaskName;
  seconds: number;
  params: JsonObject;
  precedesChange?: boolean;
}

/** Agents of Triton answer in forms of their own, and most routes pass the answer on. */
const anyResult = z.custom<JsonObject>();

/** @throws VmNotFoundError, NotSupported if the agent has no containers; the errors of `runTask` */
export async function queryVm(
  deps: RunTaskDeps,
  context: RunContext & { params: { vm_uuid: string } },
  { task, ...query }: VmQuery,
): Promise<JsonObject> {
  try {
    return await runTask(deps, context, { name: task, result: anyResult, ...query });
  } catch (error) {
    const code = error instanceof TaskRunError ? error.taskCode : undefined;
    if (code === 'VmNotFound') throw new VmNotFoundError(context.params.vm_uuid);
    if (code === 'NoContainers')
      throw new CnapiError('NotSupported', 501, (error as TaskRunError).message, { cause: error });
    throw error;
  }
}
