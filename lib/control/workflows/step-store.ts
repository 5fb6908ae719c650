/** SQL of the holder of a workflow job's duty. Each function that writes is fenced by the duty. */
import type { Queryable } from '../../platform/postgres/database.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import { DutyLostError, type HeldDuty } from '../duty/duty.ts';
import { fenceValues } from '../duty/duty-fence.ts';
import { TICK_MS } from '../tasks/deadlines/deadline-counter.ts';
import type { StepPosition, WorkflowState } from './workflow.ts';

/** A job as its holder needs it. */
export interface HeldWorkflowJob {
  id: string;
  name: string;
  serverUuid: string;
  /** The VM that the job creates. */
  vmUuid: string | undefined;
  reqId: string | undefined;
  actor: string | undefined;
  chain: string[];
  onerror: string[];
  /** With their secrets. */
  params: JsonObject;
  facts: JsonObject;
  /** The ends of steps of the chain. */
  results: { name: string; error_code?: string }[];
  state: WorkflowState;
  /** The task of the present step. */
  taskId: string | undefined;
  isCancelled: boolean;
  /** Since its present step is what it is: begun, or due. */
  stepMs: number;
}

interface HeldJobRow {
  name: string;
  server_uuid: string;
  vm_uuid: string | null;
  req_id: string | null;
  actor: string | null;
  chain: string[];
  onerror: string[];
  params: JsonObject;
  facts: JsonObject;
  results: HeldWorkflowJob['results'];
  execution: 'queued' | 'running' | 'succeeded' | 'failed' | 'canceled';
  phase: 'chain' | 'onerror';
  step: number;
  tries: number;
  is_begun: boolean;
  ending: 'failed' | 'canceled' | null;
  begun_steps: number | null;
  task: string | null;
  is_cancelled: boolean;
  step_ticks: string;
}

/** Undefined: the job was deleted. */
export async function readHeldWorkflowJob(database: Queryable, id: string): Promise<HeldWorkflowJob | undefined> {
  const { rows } = await database.query<HeldJobRow>(
    `select j.name, j.server_uuid, j.vm_uuid, j.req_id, j.actor, j.chain, j.onerror, j.params, j.facts, j.results,
         j.execution, j.phase, j.step, j.tries,
         j.is_begun, j.ending, j.begun_steps, j.task, j.cancel_requested_at is not null as is_cancelled,
         cnapi_tick() - j.step_tick as step_ticks
       from cnapi_workflow_jobs j where j.id = $1::uuid`,
    [id],
    { name: 'read held workflow job' },
  );
  const [row] = rows;
  if (row === undefined) return undefined;
  const { name, server_uuid: serverUuid, chain, onerror, params, facts, results } = row;
  const { task: taskId, is_cancelled: isCancelled } = row;
  const stepMs = Number(row.step_ticks) * TICK_MS;
  return {
    id,
    name,
    serverUuid,
    vmUuid: row.vm_uuid ?? undefined,
    reqId: row.req_id ?? undefined,
    actor: row.actor ?? undefined,
    chain,
    onerror,
    params,
    facts,
    results,
    state: stateOf(row),
    taskId: taskId ?? undefined,
    isCancelled,
    stepMs,
  };
}

function stateOf({
  execution,
  phase,
  step,
  tries,
  is_begun: isBegun,
  ending,
  begun_steps: begun,
}: HeldJobRow): WorkflowState {
  if (execution !== 'queued' && execution !== 'running') return { name: 'ended', execution };
  const left = ending === null || begun === null ? undefined : { ending, begun };
  return { name: isBegun ? 'begun' : 'due', phase, step, tries, left };
}

/** What may end the wait of a job, in its own row. */
interface WaitingJob {
  isCancelled: boolean;
  stepMs: number;
}

/** Returns the jobs that exist, by id. */
export async function readWaitingWorkflowJobs(
  database: Queryable,
  ids: readonly string[],
): Promise<Map<string, WaitingJob>> {
  const { rows } = await database.query<{ id: string; is_cancelled: boolean; step_ticks: string }>(
    `select j.id, j.cancel_requested_at is not null as is_cancelled, cnapi_tick() - j.step_tick as step_ticks
       from cnapi_workflow_jobs j where j.id = any ($1::uuid[])`,
    [ids],
    { name: 'read waiting workflow jobs' },
  );
  return new Map(
    rows.map(({ id, is_cancelled: isCancelled, step_ticks }) => [
      id,
      { isCancelled, stepMs: Number(step_ticks) * TICK_MS },
    ]),
  );
}

/** A task that a step starts. */
export interface StepTask {
  id: string;
  name: string;
  params: JsonObject;
  maskedParams: JsonObject | undefined;
  timeoutMs: number;
  idempotent: boolean;
}

/**
 * The step begins, with its task. Undefined: the job is elsewhere now, or was cancelled. `run`: the
 * run that acts for the server; null if none does. @throws DutyLostError
 */
export async function beginWorkflowStep(
  database: Queryable,
  duty: HeldDuty,
  { at: { phase, step, tries }, facts, task }: { at: StepPosition; facts: JsonObject; task: StepTask | undefined },
): Promise<{ run: string | null } | undefined> {
  const { rows } = await database.query<{ held: boolean; is_begun: boolean; run: string | null }>(
    `select held, is_begun, run from cnapi_begin_workflow_step($1::uuid, $2::uuid, $3::int, $4::text, $5::int, $6::int,
       $7::jsonb, $8::uuid, $9::text, $10::json, $11::json, $12::int, $13::boolean)`,
    [
      ...fenceValues(duty),
      ...[phase, step, tries, JSON.stringify(facts), task?.id ?? null, task?.name ?? null],
      ...[task === undefined ? null : JSON.stringify(task.params)],
      ...[task?.maskedParams === undefined ? null : JSON.stringify(task.maskedParams)],
      ...[task?.timeoutMs ?? null, task?.idempotent ?? null],
    ],
    { name: 'begin workflow step' },
  );
  const [row] = rows;
  if (row?.held !== true) throw new DutyLostError(duty);
  return row.is_begun ? { run: row.run } : undefined;
}

/** What became of a step. */
interface StepEnd {
  name: string;
  result: string;
  error: string;
  error_code?: string;
}

/**
 * The job goes on to another state. `entry`: the end of the step that it leaves; undefined if that
 * had not begun. False: the job is elsewhere now. @throws DutyLostError
 */
export async function moveWorkflowJob(
  database: Queryable,
  duty: HeldDuty,
  { from, to, entry }: { from: StepPosition; to: WorkflowState; entry: StepEnd | undefined },
): Promise<boolean> {
  const place = to.name === 'ended' ? from : to;
  const left = to.name === 'ended' ? undefined : to.left;
  const { rows } = await database.query<{ held: boolean; is_moved: boolean }>(
    `select held, is_moved from cnapi_move_workflow_job($1::uuid, $2::uuid, $3::int, $4::text, $5::int, $6::int, $7::jsonb,
       $8::text, $9::int, $10::int, $11::text, $12::int, $13::text)`,
    [
      ...fenceValues(duty),
      ...[from.phase, from.step, from.tries, entry === undefined ? null : JSON.stringify(entry)],
      ...[place.phase, place.step, place.tries, left?.ending ?? null, left?.begun ?? null],
      ...[to.name === 'ended' ? to.execution : 'running'],
    ],
    { name: 'move workflow job' },
  );
  const [row] = rows;
  if (row?.held !== true) throw new DutyLostError(duty);
  return row.is_moved;
}
