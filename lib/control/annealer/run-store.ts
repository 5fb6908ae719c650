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
 * Begins runs until `cap` have not ended in the zone, at most as many as there are `runIds`.
 * @throws DutyLostError
 */
export async function claimNoderoles(
  database: Queryable,
  duty: HeldDuty,
  { runIds, cap, policies }: { runIds: readonly string[]; cap: number; policies: readonly RolePolicy[] },
): Promise<ClaimedRun[]> {
  const { rows } = await database.query<{ held: boolean; noderole_run: string | null; noderole: string | null }>(
    `select held, noderole_run, noderole from cnapi_claim_noderoles($1::uuid, $2::uuid, $3::int, $4::uuid[], $5::int,
       $6::text[], $7::int[], $8::bigint[])`,
    [
      ...fenceValues(duty),
      ...[runIds, cap, policies.map(({ role }) => role)],
      ...[policies.map(({ maxFailures }) => maxFailures ?? null), policies.map(({ retryTicks }) => retryTicks)],
    ],
    { name: 'claim noderoles' },
  );
  if (rows.some(({ held }) => !held)) throw new DutyLostError(duty);
  return rows.flatMap(({ noderole_run: runId, noderole: noderoleId }) =>
    runId === null || noderoleId === null ? [] : [{ runId, noderoleId }],
  );
}

/**
 * `wall` of a success; absent: the noderole keeps the one that it has. `final`: no other attempt
 * follows. `refused`: the run did not begin, so it does not count.
 */
export interface RunEnd {
  runId: string;
  outcome: 'succeeded' | 'failed' | 'refused' | 'final';
  wall?: JsonObject;
  error?: { code: string; message: string };
}

/** @throws DutyLostError */
export function endNoderoleRuns(database: Queryable, duty: HeldDuty, ends: readonly RunEnd[]): Promise<void> {
  return fenced(
    database,
    duty,
    `select cnapi_end_noderole_runs($1::uuid, $2::uuid, $3::int, $4::uuid[], $5::text[], $6::jsonb[],
       $7::json[]) as held`,
    [
      ends.map(({ runId }) => runId),
      ends.map(({ outcome }) => outcome),
      ends.map(({ wall }) => (wall === undefined ? null : JSON.stringify(wall))),
      ends.map(({ error }) => (error === undefined ? null : JSON.stringify(error))),
    ],
  );
}

/** A run that has not ended, for the holder of the duty. */
export interface OpenRun {
  id: string;
  noderoleId: string;
  role: string;
  serverUuid: string;
  taskId: string | null;
  /** An earlier run of the noderole has succeeded, also one that it had abandoned. */
  hasSucceeded: boolean;
  /** The noderole was proposed again: the end of the run changes nothing. */
  isAbandoned: boolean;
}

export async function readOpenRuns(database: Queryable): Promise<OpenRun[]> {
  const { rows } = await database.query<OpenRun>(
    `select r.id, n.id as "noderoleId", n.role, r.server_uuid as "serverUuid",
         r.task as "taskId", n.noderole_run is distinct from r.id as "isAbandoned",
         n.run_count > 0 or exists (
           select 1 from cnapi_noderole_runs o where o.noderole = n.id and o.outcome = 'succeeded') as "hasSucceeded"
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
  committedData: JsonObject;
}

/** Bounds the ways through the graph that are followed (docs/annealer.md). */
const MAX_DISTANCE = 100;
/** Bounds the noderoles whose data one run sees. */
export const MAX_SEEN = 1_000;

/**
 * The data of the noderole, of its ancestors, the nearest first, and of the others on its server
 * that are active. More than MAX_SEEN rows mean that there are too many.
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
     select n.role, d.distance, n.server_uuid = o.server_uuid as "isSameServer", n.wall, n.committed_data as "committedData"
       from cnapi_noderoles o
       join lateral (
         select near.id, near.distance from near
         union all
         select s.id, null from cnapi_noderoles s
           where s.server_uuid = o.server_uuid and s.state = 'active' and s.id not in (select near.id from near)
       ) as d on true
       join cnapi_noderoles n on n.id = d.id
       where o.id = $1::uuid
       order by d.distance nulls last, n.cohort, n.id limit ${MAX_SEEN + 1}`,
    [noderoleId],
    { name: 'read noderole run data' },
  );
  return rows;
}

/** What the wall of a run is compared with. */
export async function readRunInputs(database: Queryable, runId: string): Promise<JsonObject> {
  const { rows } = await database.query<{ inputs: JsonObject | null }>(
    'select r.inputs from cnapi_noderole_runs r where r.id = $1::uuid',
    [runId],
    { name: 'read noderole run inputs' },
  );
  return rows[0]?.inputs ?? {};
}

/** The task of a run. `inputs`: what its wall will be compared with. */
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
  const { rows } = await database.query<{ held: boolean; server_uuid: string; instance_run: string | null }>(
    `select held, server_uuid, instance_run from cnapi_begin_noderole_tasks($1::uuid, $2::uuid, $3::int, $4::uuid[], $5::uuid[],
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
  return rows.map(({ server_uuid: serverUuid, instance_run: run }) => ({ serverUuid, run }));
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

/** Whether a claim would find something, if there is room: due, and on a server that runs. */
export async function isSomeNoderoleDue(database: Queryable): Promise<boolean> {
  const { rows } = await database.query<{ found: boolean }>(
    `select exists (
       select 1 from cnapi_noderoles n where n.state = 'todo' and n.due_tick <= cnapi_tick()
         and exists (select 1 from cnapi_presence_of(n.server_uuid) p where p.run is not null)) as found`,
    [],
    { name: 'find due noderoles' },
  );
  return rows[0]?.found === true;
}
