/** SQL of the runs of noderoles. What writes is fenced by the annealer's duty. */
import type { Queryable } from '../../platform/postgres/database.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import { DutyLostError, type HeldDuty } from '../duty/duty.ts';
import { fenced, fenceValues } from '../duty/duty-fence.ts';

/** How often a role is tried, and how long it waits between two tries. */
export interface RolePolicy {
  role: string;
  /** Attempts that may fail before the noderole is in error; undefined: any number. */
  maxFailures: number | undefined;
  retryTicks: number;
}

interface ClaimedRun {
  runId: string;
  noderoleId: string;
}

/**
 * Begins at most as many runs as there are `runIds`, and so that at most `cap` run.
 * @throws DutyLostError
 */
export async function claimNoderoles(
  database: Queryable,
  duty: HeldDuty,
  { runIds, cap, policies }: { runIds: readonly string[]; cap: number; policies: readonly RolePolicy[] },
): Promise<ClaimedRun[]> {
  const { rows } = await database.query<{ held: boolean; run: string | null; noderole: string | null }>(
    `select held, run, noderole from cnapi_claim_noderoles($1::uuid, $2::uuid, $3::int, $4::uuid[], $5::int,
       $6::text[], $7::int[], $8::bigint[])`,
    [
      ...fenceValues(duty),
      ...[runIds, cap, policies.map(({ role }) => role)],
      ...[policies.map(({ maxFailures }) => maxFailures ?? null), policies.map(({ retryTicks }) => retryTicks)],
    ],
    { name: 'claim noderoles' },
  );
  if (rows.some(({ held }) => !held)) throw new DutyLostError(duty);
  return rows.flatMap(({ run, noderole }) =>
    run === null || noderole === null ? [] : [{ runId: run, noderoleId: noderole }],
  );
}

/** `wall` of a success; `error` of a failure. */
export interface RunEnd {
  runId: string;
  wall?: JsonObject;
  error?: { code: string; message: string };
}

/** @throws DutyLostError */
export function endNoderoleRuns(database: Queryable, duty: HeldDuty, ends: readonly RunEnd[]): Promise<void> {
  return fenced(
    database,
    duty,
    'select cnapi_end_noderole_runs($1::uuid, $2::uuid, $3::int, $4::uuid[], $5::jsonb[], $6::json[]) as held',
    [
      ends.map(({ runId }) => runId),
      ends.map(({ wall }) => (wall === undefined ? null : JSON.stringify(wall))),
      ends.map(({ error }) => (error === undefined ? null : JSON.stringify(error))),
    ],
  );
}

/** A run that has not ended. */
export interface OpenRun {
  id: string;
  noderoleId: string;
  role: string;
  serverUuid: string;
  taskId: string | null;
  startedAt: Date;
  /** Successful runs of the noderole before. */
  runCount: number;
  /** The noderole was proposed again: the end of the run changes nothing. */
  isLeft: boolean;
}

export async function readOpenRuns(database: Queryable): Promise<OpenRun[]> {
  const { rows } = await database.query<OpenRun>(
    `select r.id, n.id as "noderoleId", n.role, r.server_uuid as "serverUuid",
         r.task as "taskId", r.started_at as "startedAt", n.run_count as "runCount", n.run is distinct from r.id as "isLeft"
       from cnapi_noderole_runs r join cnapi_noderoles n on n.id = r.noderole
       where r.ended_at is null order by r.started_at, r.id`,
    [],
    { name: 'read open noderole runs' },
  );
  return rows;
}

/** Data that a run sees, beside the templates of the roles. */
interface RunDataRow {
  role: string;
  /** Edges to it; 0: the noderole itself; null: not an ancestor. */
  distance: number | null;
  isSameServer: boolean;
  wall: JsonObject;
  user: JsonObject;
}

/** Bounds the ways through the graph that are followed. */
const MAX_DISTANCE = 50;
const MAX_SEEN = 1_000;

/**
 * The data of the noderole, of its ancestors, and of the others on its server that are active; in
 * the order of cohorts.
 */
export async function readRunData(database: Queryable, noderoleId: string): Promise<RunDataRow[]> {
  const { rows } = await database.query<RunDataRow>(
    `with recursive up (id, distance) as (
       select $1::uuid, 0
       union
       select e.parent, up.distance + 1 from up join cnapi_noderole_edges e on e.child = up.id
         where up.distance < ${MAX_DISTANCE}
     ), near as (
       select up.id, min(up.distance) as distance from up group by up.id
     )
     select n.role, d.distance, n.server_uuid = o.server_uuid as "isSameServer", n.wall, n.committed_data as "user"
       from cnapi_noderoles o
       join lateral (
         select near.id, near.distance from near
         union all
         select s.id, null from cnapi_noderoles s
           where s.server_uuid = o.server_uuid and s.state = 'active' and s.id not in (select near.id from near)
       ) as d on true
       join cnapi_noderoles n on n.id = d.id
       where o.id = $1::uuid
       order by n.cohort, n.id limit ${MAX_SEEN}`,
    [noderoleId],
    { name: 'read noderole run data' },
  );
  return rows;
}

/** What was sent to the script of a run. */
export async function readRunInputs(database: Queryable, runId: string): Promise<JsonObject> {
  const { rows } = await database.query<{ inputs: JsonObject | null }>(
    'select r.inputs from cnapi_noderole_runs r where r.id = $1::uuid',
    [runId],
    { name: 'read noderole run inputs' },
  );
  return rows[0]?.inputs ?? {};
}

/** The task of a run, and what it sends. */
export interface RunTask {
  runId: string;
  taskId: string;
  inputs: JsonObject;
  params: JsonObject;
  maskedParams: JsonObject | undefined;
  timeoutMs: number;
}

/** `run`: that of the instance which acts for the server; null: none does at present. */
interface TaskedServer {
  serverUuid: string;
  run: string | null;
}

/** @throws DutyLostError */
export async function beginNoderoleTasks(
  database: Queryable,
  duty: HeldDuty,
  tasks: readonly RunTask[],
): Promise<TaskedServer[]> {
  const { rows } = await database.query<{ held: boolean; server_uuid: string; run: string | null }>(
    `select held, server_uuid, run from cnapi_begin_noderole_tasks($1::uuid, $2::uuid, $3::int, $4::uuid[], $5::uuid[],
       $6::jsonb[], $7::json[], $8::json[], $9::int[])`,
    [
      ...fenceValues(duty),
      ...[tasks.map(({ runId }) => runId), tasks.map(({ taskId }) => taskId)],
      ...[tasks.map(({ inputs }) => JSON.stringify(inputs)), tasks.map(({ params }) => JSON.stringify(params))],
      tasks.map(({ maskedParams }) => (maskedParams === undefined ? null : JSON.stringify(maskedParams))),
      tasks.map(({ timeoutMs }) => timeoutMs),
    ],
    { name: 'begin noderole tasks' },
  );
  if (rows.some(({ held }) => !held)) throw new DutyLostError(duty);
  return rows.map(({ server_uuid: serverUuid, run }) => ({ serverUuid, run }));
}

/** Deletes some runs that ended more than `days` ago; returns how many. */
export async function deleteEndedNoderoleRuns(database: Queryable, days: number, limit: number): Promise<number> {
  const { rowCount } = await database.query(
    `delete from cnapi_noderole_runs r where r.id = any (array(
       select o.id from cnapi_noderole_runs o
         where o.ended_at is not null and o.ended_at < cnapi_now() - $1::int * interval '1 day'
         order by o.ended_at limit $2::int for update skip locked))`,
    [days, limit],
  );
  return rowCount;
}
