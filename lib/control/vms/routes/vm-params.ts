/** What agents of this project accept as the parameters of their tasks about VMs. Pure. */

import type { z } from 'zod';
import type { JsonObject } from '../../../protocol/json/bounded-json.ts';
import type { LegacyTaskName, TaskName } from '../../../protocol/task-name.ts';
import { vmTaskParams } from '../../../protocol/vms.ts';

const SCHEMAS: Readonly<Record<string, z.ZodType>> = vmTaskParams;

/**
 * The first wrong parameter; undefined if there is none. Other brands than `oci` are for agents of
 * Triton.
 */
export function findVmParamIssue(
  task: TaskName | LegacyTaskName,
  params: JsonObject,
): { field: string; message: string } | undefined {
  if (task === 'machine_create' && params.brand !== undefined && params.brand !== 'oci') return undefined;
  const issue = SCHEMAS[task]?.safeParse(params).error?.issues[0];
  return issue && { field: issue.path.join('.'), message: issue.message };
}
