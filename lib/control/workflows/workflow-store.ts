/** SQL of workflow jobs as callers see them: create, read, list, cancel, delete, count. */
import { type Queryable, sqlStateOf } from '../../platform/postgres/database.ts';
import { combineStatement, SqlParameters, statementName } from '../../platform/postgres/sql-text.ts';
import { idRangeOf } from '../../protocol/api/contract/id-prefix.ts';
import type { WORKFLOW_EXECUTIONS } from '../../protocol/api/workflows.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import type { AuditRecordPart } from '../audit-part.ts';
import { orRefusal } from '../tasks/store/task-errors.ts';

/** The kind of the duties that carry out workflow jobs. The id of the duty is that of the job. */
export const WORKFLOW_DUTY = 'workflow-job';

type WorkflowExecution = (typeof WORKFLOW_EXECUTIONS)[number];

interface NewWorkflowJob {
  id: string;
  name: string;
  serverUuid: string;
  /** The VM that the job creates. */
  vmUuid?: string | undefined;
  chain: readonly string[];
  onerror: readonly string[];
  params: JsonObject;
  /** Shown to callers in place of `params` if these hold secrets. */
  maskedParams: JsonObject | undefined;
  /** Over what identifies the request. */
  requestHash: string;
  requestId: string | undefined;
  actor: string | undefined;
  /** A record of who asks for it, written in the same statement. */
  record?: AuditRecordPart | undefined;
}

const UNIQUE_VIOLATION = '23505';
/** Jobs that have not ended: an instance carries out 2,000 duties. */
export const MAX_UNFINISHED_WORKFLOWS = 1_000;
/** Unfinished jobs of one caller, so that no caller takes all the room. */
export const MAX_UNFINISHED_OF_CALLER = 500;

/**
 * Creates the job and its duty, or nothing. `busy`: its server, or its VM, has an
 * unfinished job. `full`: there are as many jobs as there may be. `caller-full`: the caller has as
 * many as one may have. Creations at the same time may exceed the bounds by their number.
 * @throws CnapiError NoAllocatableServersError: the room for its VM is not held any more
 */
export async function createWorkflowJob(
  database: Queryable,
  job: NewWorkflowJob,
): Promise<'created' | 'busy' | 'full' | 'caller-full'> {
  const { record } = job;
  const text = JSON.stringify(job.params);
  const masked = job.maskedParams === undefined ? null : JSON.stringify(job.maskedParams);
  const parameters = new SqlParameters([
    ...[job.id, job.name, job.serverUuid, job.chain, job.onerror, text, masked, job.requestHash],
    ...[job.requestId ?? null, job.actor ?? null, WORKFLOW_DUTY, MAX_UNFINISHED_WORKFLOWS, MAX_UNFINISHED_OF_CALLER],
    ...[Buffer.byteLength(masked ?? text), job.vmUuid ?? null],
  ]);
  const { text: statement, values } = combineStatement(
    `with room as (
       select count(*) < $12::int as is_left,
           count(*) filter (where actor is not distinct from $10::text) < $13::int as is_left_of_caller
         from (select actor from cnapi_workflow_jobs where ended_at is null limit $12::int) as unfinished
     ), made as (
       insert into cnapi_workflow_jobs
           (id, name, server_uuid, chain, onerror, params, masked_params, request_hash, req_id, actor,
            params_bytes, vm_uuid)
         select $1::uuid, $2::text, $3::uuid, $4::text[], $5::text[], $6::json, $7::json, $8::text, $9::text, $10::text,
             $14::int, $15::uuid
           from room where is_left and is_left_of_caller
         returning id
     )
     select room.is_left, duty.id is not null as is_made
       from room left join (select cnapi_create_duties(array[made.id], $11::text) as id from made) as duty on true`,
    parameters,
    record,
  );
  const name = statementName('create workflow job', record);
  try {
    const { rows } = await database.query<{ is_left: boolean; is_made: boolean }>(statement, values, { name });
    if (rows[0]?.is_made === true) return 'created';
    return rows[0]?.is_left === true ? 'caller-full' : 'full';
  } catch (error) {
    if (sqlStateOf(error) === UNIQUE_VIOLATION) return 'busy';
    throw orRefusal(error);
  }
}

/** The end of a step. */
export interface WorkflowStepResult {
  name: string;
  result: string;
  error: string;
  error_code?: string;
  task?: string | null;
  started_at: string;
  finished_at: string;
}

/** The columns that callers may see. Times are the database's. */
export interface WorkflowJobRow {
  id: string;
  name: string;
  server_uuid: string;
  vm_uuid: string | null;
  chain: string[];
  onerror: string[];
  params: JsonObject;
  request_hash: string;
  actor: string | null;
  execution: WorkflowExecution;
  phase: 'chain' | 'onerror';
  step: number;
  tries: number;
  is_begun: boolean;
  task: string | null;
  results: WorkflowStepResult[];
  onerror_results: WorkflowStepResult[];
  cancel_requested_at: Date | null;
  cancel_actor: string | null;
  created_at: Date;
  step_since: Date;
  ended_at: Date | null;
}

const columnsWithoutParams = `j.id, j.name, j.server_uuid, j.vm_uuid, j.chain, j.onerror,
  j.request_hash, j.actor, j.execution, j.phase, j.step, j.tries, j.is_begun, j.task, j.results, j.onerror_results,
  j.cancel_requested_at, j.cancel_actor, j.created_at, j.step_since, j.ended_at`;
const columns = `${columnsWithoutParams}, coalesce(j.masked_params, j.params) as params`;

export async function readWorkflowJob(database: Queryable, id: string): Promise<WorkflowJobRow | undefined> {
  const { rows } = await database.query<WorkflowJobRow>(
    `select ${columns} from cnapi_workflow_jobs j where j.id = $1::uuid`,
    [id],
    { name: 'read workflow job' },
  );
  return rows[0];
}

/** The job of this server itself that has not ended. */
export async function readUnfinishedWorkflowJob(
  database: Queryable,
  serverUuid: string,
): Promise<WorkflowJobRow | undefined> {
  const { rows } = await database.query<WorkflowJobRow>(
    `select ${columns} from cnapi_workflow_jobs j where j.server_uuid = $1::uuid and j.ended_at is null and j.vm_uuid is null`,
    [serverUuid],
    { name: 'read unfinished workflow job' },
  );
  return rows[0];
}

/** The newest job that creates this VM. While one is unfinished, it is that one. */
export async function readWorkflowJobOfVm(database: Queryable, vmUuid: string): Promise<WorkflowJobRow | undefined> {
  const { rows } = await database.query<WorkflowJobRow>(
    `select ${columns} from cnapi_workflow_jobs j where j.vm_uuid = $1::uuid order by j.created_at desc limit 1`,
    [vmUuid],
    { name: 'read workflow job of vm' },
  );
  return rows[0];
}

export interface WorkflowJobFilter {
  execution?: WorkflowExecution | undefined;
  name?: string | undefined;
  serverUuid?: string | undefined;
  /** Only jobs whose ids begin like this. */
  idPrefix?: string | undefined;
  /**
   * The last job of the page before, which may have been deleted since; then the list begins anew.
   */
  after?: string | undefined;
  offset?: number | undefined;
  /** Whether the parameters are read; without them they are empty. */
  withParams: boolean;
}

/**
 * The newest first, at most `size.rows`. Ends after `size.bytes` of parameters, but not before one
 * row. Reads the parameters of no other row, because they can be large.
 */
export async function listWorkflowJobs(
  database: Queryable,
  { execution, name, serverUuid, idPrefix, after, offset = 0, withParams }: WorkflowJobFilter,
  size: { rows: number; bytes: number },
): Promise<WorkflowJobRow[]> {
  const ids = idPrefix === undefined ? undefined : idRangeOf(idPrefix);
  const { rows } = await database.query<WorkflowJobRow>(
    `select ${columnsWithoutParams},
         case when $10::boolean then coalesce(j.masked_params, j.params) else '{}' end as params from (
       select *, sum(w.params_bytes) over (order by w.created_at desc, w.id desc) - w.params_bytes as bytes_before
         from (
           select * from cnapi_workflow_jobs o
             where ($1::text is null or o.execution = $1::text) and ($2::text is null or o.name = $2::text)
               and ($3::uuid is null or o.server_uuid = $3::uuid)
               and ($8::uuid is null or o.id between $8::uuid and $9::uuid)
               and coalesce((o.created_at, o.id) < (select a.created_at, a.id from cnapi_workflow_jobs a where a.id = $4::uuid),
                 true)
             order by o.created_at desc, o.id desc limit $5::int offset $6::bigint
         ) as w
     ) as j where not $10::boolean or j.bytes_before < $7::int order by j.created_at desc, j.id desc`,
    [
      ...[execution ?? null, name ?? null, serverUuid ?? null, after ?? null, size.rows, offset, size.bytes],
      ...[ids?.first ?? null, ids?.last ?? null, withParams],
    ],
    { name: 'list workflow jobs' },
  );
  return rows;
}

/**
 * How far jobs are, for those who wait: `ends` counts the ends of steps, `begins` their beginnings.
 */
export interface WorkflowPosition {
  id: string;
  ends: number;
  begins: number;
  isEnded: boolean;
}

export async function readWorkflowPositions(database: Queryable, ids: readonly string[]): Promise<WorkflowPosition[]> {
  const { rows } = await database.query<WorkflowPosition>(
    `select j.id, e.ends, e.ends + j.is_begun::int as begins, j.ended_at is not null as "isEnded"
       from cnapi_workflow_jobs j,
         lateral (select jsonb_array_length(j.results) + jsonb_array_length(j.onerror_results) as ends) e
       where j.id = any ($1::uuid[])`,
    [ids],
    { name: 'read workflow positions' },
  );
  return rows;
}

/** False if the job has ended or does not exist. */
export async function requestWorkflowCancel(
  database: Queryable,
  id: string,
  { actor, record }: { actor: string | undefined; record?: AuditRecordPart | undefined },
): Promise<boolean> {
  const { text, values } = combineStatement(
    `update cnapi_workflow_jobs j
       set cancel_requested_at = coalesce(j.cancel_requested_at, cnapi_now()),
         cancel_actor = case when j.cancel_requested_at is null then $2::text else j.cancel_actor end
       where j.id = $1::uuid and j.ended_at is null`,
    new SqlParameters([id, actor ?? null]),
    record,
  );
  const name = statementName('request cancel of workflow job', record);
  const { rowCount } = await database.query(text, values, { name });
  return rowCount > 0;
}

/** Deletes some jobs that ended more than `days` ago; returns how many. */
export async function deleteEndedWorkflowJobs(database: Queryable, days: number, limit: number): Promise<number> {
  const { rowCount } = await database.query(
    `delete from cnapi_workflow_jobs j where j.ended_at is not null and j.id = any (array(
       select o.id from cnapi_workflow_jobs o
         where o.ended_at is not null and o.ended_at < cnapi_now() - $1::int * interval '1 day'
         order by o.ended_at limit $2::int for update skip locked))`,
    [days, limit],
  );
  return rowCount;
}

/**
 * The number of unfinished jobs in each execution. Reads only their index: those that have ended
 * are many more.
 */
export async function countWorkflowJobs(database: Queryable): Promise<Record<string, number>> {
  const { rows } = await database.query<{ execution: string; count: number }>(
    `select j.execution, count(*)::int as count from cnapi_workflow_jobs j where j.ended_at is null
       group by j.execution`,
    [],
    { name: 'count workflow jobs' },
  );
  return { queued: 0, running: 0, ...Object.fromEntries(rows.map(({ execution, count }) => [execution, count])) };
}
