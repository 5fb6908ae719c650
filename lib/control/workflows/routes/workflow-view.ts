/**
 * Workflow jobs as callers see them, in the form of Triton's workflow API. Callers without the
 * right `task-contents` see neither the parameters nor the texts of errors, which may quote a
 * program. Pure.
 */
import { definedFields } from '../../../platform/defined-fields.ts';
import type { WorkflowJob } from '../../../protocol/api/workflows.ts';
import { type Actor, hasRight } from '../../access/token.ts';
import { type StepWork, timeoutSeconds, workflowStep } from '../definitions.ts';
import type { WorkflowJobRow, WorkflowStepResult } from '../workflow-store.ts';

/** Whether this caller sees parameters and texts of errors. */
export const showsContents = (actor: Actor): boolean => hasRight(actor, 'task-contents');

export function toWorkflowJob(row: WorkflowJobRow, actor: Actor): WorkflowJob {
  const isWhole = showsContents(actor);
  const { server_uuid, created_at, ended_at } = row;
  const steps = (names: readonly string[]) => names.map((name) => toStep(row.name, name));
  const results = (all: readonly WorkflowStepResult[]) => all.map((result) => toResult(result, isWhole));
  return {
    uuid: row.id,
    name: row.name,
    execution: row.execution,
    server_uuid,
    ...definedFields({ vm_uuid: row.vm_uuid }),
    target: `/servers/${server_uuid}`,
    params: isWhole ? row.params : {},
    actor: row.actor,
    chain: steps(row.chain),
    chain_results: results(row.results),
    onerror: steps(row.onerror),
    onerror_results: results(row.onerror_results),
    created_at: created_at.toISOString(),
    exec_after: created_at.toISOString(),
    timeout: timeoutOf(row),
    ...(ended_at && { elapsed: (ended_at.getTime() - created_at.getTime()) / 1000 }),
    cancel_requested: row.cancel_requested_at !== null,
    ...definedFields({ finished_at: ended_at?.toISOString(), canceled_by: row.cancel_actor }),
    ...(ended_at === null && { waiting_for: toPresentStep(row) }),
    ...(!isWhole && { withheld: true }),
  };
}

function toPresentStep({
  name: workflow,
  phase,
  chain,
  onerror,
  step,
  step_since,
  is_begun,
  task: taskId,
  tries,
}: WorkflowJobRow) {
  const name = (phase === 'chain' ? chain : onerror)[step] ?? '';
  const definition = knownStep(workflow, name);
  const until = definition && endOf(definition.work);
  return {
    step: name,
    since: step_since.toISOString(),
    has_begun: is_begun,
    ...definedFields({
      until,
      task: definition?.work.kind === 'task' ? definition.work.task : undefined,
      task_id: taskId,
    }),
    tries,
  };
}

/** What ends a step, as people say it: `until …`. */
function endOf(work: StepWork): string | undefined {
  switch (work.kind) {
    case 'task':
      return `task ${work.task} has ended`;
    case 'change':
    case 'mark-rebooting':
    case 'release':
      return undefined;
    case 'take-ticket':
      return 'the job has the ticket of its VM';
    case 'await-idle':
      return 'the server has no task that has not ended';
    case 'await-boot':
      return 'the server is back, with another boot time';
    default:
      return work satisfies never;
  }
}

/** A job of a later version may have steps that this one does not know. */
function toStep(workflow: string, name: string) {
  const { timeoutMs, maxTries = 1 } = knownStep(workflow, name) ?? { timeoutMs: 0 };
  return { name, timeout: timeoutMs / 1000, retry: maxTries };
}

const timeoutOf = ({ name, chain }: WorkflowJobRow): number => known(() => timeoutSeconds(name, chain)) ?? 0;

const knownStep = (workflow: string, name: string) => known(() => workflowStep(workflow, name));

function known<Value>(read: () => Value): Value | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}

function toResult(
  { name, result, error, error_code, task: taskId, started_at, finished_at }: WorkflowStepResult,
  isWhole: boolean,
) {
  return {
    name,
    result,
    error: isWhole || error === '' ? error : 'withheld',
    ...definedFields({ error_code, task_id: taskId }),
    // The database's own texts of times; to the microsecond.
    started_at: new Date(started_at).toISOString(),
    finished_at: new Date(finished_at).toISOString(),
  };
}
