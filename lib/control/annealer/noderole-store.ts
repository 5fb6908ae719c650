/** SQL of noderoles: their graph, their states and their data. What locks returns only ids. */
import type { Queryable } from '../../platform/postgres/database.ts';
import type { NoderoleState } from '../../protocol/api/annealer.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import type { BindingPlan, BoundNoderole } from './binding.ts';

/** The kind of the duty of the annealer. There is one, from the first commit on. */
export const ANNEALER_DUTY = 'annealer';
export const ANNEALER_DUTY_ID = '0a22ea1e-0000-4000-8000-000000000001';

/** What new bindings are planned on. */
interface GraphSnapshot {
  /** The version of the graph; a plan holds for this one. */
  version: string;
  bound: BoundNoderole[];
  /** Noderoles in all deployments, and in the first of these. */
  total: number;
  inDeployment: number;
}

const boundColumns = `n.id, n.role, n.server_uuid as "serverUuid", n.deployment_id as "deploymentId", n.cohort`;

interface Scope {
  deploymentIds: readonly string[];
  servers: readonly string[];
  /** Roles of which all noderoles in the deployments are read, and of which the first one is. */
  roles: { whole: readonly string[]; single: readonly string[] };
}

/** What is bound on the servers, and what the deployments have of the roles. */
export async function readGraph(database: Queryable, { deploymentIds, servers, roles }: Scope): Promise<GraphSnapshot> {
  // The version first: a graph that changes in between makes the plan fail, not wrong.
  const { rows: versions } = await database.query<{ graph_version: string; total: number; in_deployment: number }>(
    `select coalesce((select a.graph_version from cnapi_annealer a), 0) as graph_version,
       (select count(*)::int from cnapi_noderoles) as total,
       (select count(*)::int from cnapi_noderoles n where n.deployment_id = $1::uuid) as in_deployment`,
    [deploymentIds[0] ?? null],
    { name: 'read annealer graph version' },
  );
  const { rows } = await database.query<BoundNoderole>(
    `select ${boundColumns} from cnapi_noderoles n where n.server_uuid = any ($2::uuid[])
     union
     select ${boundColumns} from cnapi_noderoles n where n.deployment_id = any ($1::uuid[]) and n.role = any ($3::text[])
     union
     select s.* from unnest($1::uuid[]) as d cross join unnest($4::text[]) as r
       cross join lateral (
         select ${boundColumns} from cnapi_noderoles n where n.deployment_id = d and n.role = r
           order by n.cohort, n.id limit 1) as s
     order by cohort, id`,
    [deploymentIds, servers, roles.whole, roles.single],
    { name: 'read annealer graph' },
  );
  const { graph_version: version = '0', total = 0, in_deployment: inDeployment = 0 } = versions[0] ?? {};
  return { version, total, inDeployment, bound: rows };
}

/** Data for the next commit, of new noderoles or others. */
interface ProposedData {
  ids: readonly string[];
  data: JsonObject;
}

/** False: the graph has changed since its version was read; nothing was stored. */
export async function bindNoderoles(
  database: Queryable,
  version: string,
  { noderoles, edges }: BindingPlan,
  proposed: ProposedData = { ids: [], data: {} },
): Promise<boolean> {
  const { rows } = await database.query<{ done: boolean }>(
    `select cnapi_bind_noderoles($1::bigint, $2::uuid[], $3::text[], $4::uuid[], $5::uuid[], $6::int[],
       $7::uuid[], $8::uuid[], $9::boolean[], $10::uuid[], $11::jsonb) as done`,
    [
      version,
      noderoles.map(({ id }) => id),
      noderoles.map(({ role }) => role),
      noderoles.map(({ serverUuid }) => serverUuid),
      noderoles.map(({ deploymentId }) => deploymentId),
      noderoles.map(({ cohort }) => cohort),
      edges.map(({ parentId }) => parentId),
      edges.map(({ childId }) => childId),
      edges.map(({ isOrderOnly }) => isOrderOnly),
      proposed.ids,
      JSON.stringify(proposed.data),
    ],
    { name: 'bind noderoles' },
  );
  return rows[0]?.done === true;
}

/** A noderole as callers see it. Times are the database's. */
export interface NoderoleRow {
  id: string;
  role: string;
  server_uuid: string;
  deployment_id: string;
  state: NoderoleState;
  cohort: number;
  blocked_by: string | null;
  is_stale: boolean;
  run_count: number;
  failures: number;
  /** How long it is not claimed because an attempt has failed. */
  pause_ticks: number;
  error: { code: string; message: string } | null;
  state_since: Date;
}

const columns = `n.id, n.role, n.server_uuid, n.deployment_id, n.state, n.cohort, n.blocked_by, n.is_stale, n.run_count,
  n.failures, greatest(0, n.due_tick - cnapi_tick())::int as pause_ticks, n.error, n.state_since`;

export interface NoderoleFilter {
  deploymentId?: string | undefined;
  serverUuid?: string | undefined;
  role?: string | undefined;
  state?: NoderoleState | undefined;
  /** The page after this one. */
  after?: { cohort: number; id: string } | undefined;
}

/** In the order in which they run: of (cohort, id). */
export async function listNoderoles(
  database: Queryable,
  { deploymentId, serverUuid, role, state, after }: NoderoleFilter,
  limit: number,
): Promise<NoderoleRow[]> {
  const { rows } = await database.query<NoderoleRow>(
    `select ${columns} from cnapi_noderoles n
       where ($1::uuid is null or n.deployment_id = $1::uuid) and ($2::uuid is null or n.server_uuid = $2::uuid)
         and ($3::text is null or n.role = $3::text) and ($4::text is null or n.state = $4::text)
         and ($5::int is null or (n.cohort, n.id) > ($5::int, $6::uuid))
       order by n.cohort, n.id limit $7::int`,
    [
      deploymentId ?? null,
      serverUuid ?? null,
      role ?? null,
      state ?? null,
      after?.cohort ?? null,
      after?.id ?? null,
      limit,
    ],
    { name: 'list noderoles' },
  );
  return rows;
}

/** In the order of the ids; those that do not exist are left out. */
export async function readNoderoles(database: Queryable, ids: readonly string[]): Promise<NoderoleRow[]> {
  const { rows } = await database.query<NoderoleRow>(
    `select ${columns} from unnest($1::uuid[]) with ordinality as w (id, place)
       join cnapi_noderoles n on n.id = w.id order by w.place`,
    [ids],
    { name: 'read noderoles' },
  );
  return rows;
}

/** A noderole with its data and its neighbours. */
export interface NoderoleDetails extends NoderoleRow {
  proposed_data: JsonObject | null;
  committed_data: JsonObject;
  wall: JsonObject;
  parents: Neighbour[];
  children: Neighbour[];
}

interface Neighbour {
  id: string;
  role: string;
  server_uuid: string;
  state: NoderoleState;
  is_order_only: boolean;
}

/** Bounds the neighbours in an answer: first those that are not active. */
const MAX_NEIGHBOURS = 200;

const neighbours = (of: 'parent' | 'child') => {
  const own = of === 'parent' ? 'child' : 'parent';
  return `(select coalesce(json_agg(json_build_object('id', o.id, 'role', o.role, 'server_uuid', o.server_uuid,
      'state', o.state, 'is_order_only', o.is_order_only)), '[]')
    from (select m.id, m.role, m.server_uuid, m.state, e.is_order_only from cnapi_noderole_edges e
      join cnapi_noderoles m on m.id = e.${of} where e.${own} = n.id
      order by m.state = 'active', m.cohort, m.id limit ${MAX_NEIGHBOURS}) as o)`;
};

export async function readNoderole(database: Queryable, id: string): Promise<NoderoleDetails | undefined> {
  const { rows } = await database.query<NoderoleDetails>(
    `select ${columns}, n.proposed_data, n.committed_data, n.wall,
         ${neighbours('parent')} as parents, ${neighbours('child')} as children
       from cnapi_noderoles n where n.id = $1::uuid`,
    [id],
    { name: 'read noderole' },
  );
  return rows[0];
}

/**
 * Data for the next commit; data equal to the committed one proposes nothing. Returns how many of
 * them exist.
 */
export async function proposeNoderoleData(
  database: Queryable,
  ids: readonly string[],
  data: JsonObject,
): Promise<number> {
  const { rowCount } = await database.query(
    `update cnapi_noderoles n set proposed_data = nullif($2::jsonb, n.committed_data)
       where n.id = any (array(
         select o.id from cnapi_noderoles o where o.id = any ($1::uuid[]) order by o.cohort, o.id for no key update))`,
    [ids, JSON.stringify(data)],
    { name: 'propose noderole data' },
  );
  return rowCount;
}

/** The noderole does not run before the next commit. False: no such noderole. */
export async function proposeNoderole(database: Queryable, id: string): Promise<boolean> {
  const { rows } = await database.query<{ done: boolean }>(
    `select exists (select 1 from cnapi_step_noderoles(array[$1::uuid], '{propose}')) as done`,
    [id],
    { name: 'propose noderole' },
  );
  return rows[0]?.done === true;
}

/**
 * `committed`: noderoles that were new or had other data. `due`: those among them that can run now.
 */
export async function commitDeployment(
  database: Queryable,
  deploymentId: string,
  actor: string | undefined,
): Promise<{ committed: number; due: number }> {
  const { rows } = await database.query<{ committed: number; due: number }>(
    'select committed, due from cnapi_commit_deployment($1::uuid, $2::text, $3::uuid, $4::text)',
    [deploymentId, actor ?? null, ANNEALER_DUTY_ID, ANNEALER_DUTY],
    { name: 'commit deployment' },
  );
  return rows[0] ?? { committed: 0, due: 0 };
}

export type RetryAnswer = { isDone: true } | { isDone: false; state: NoderoleState; blockedBy: string | null };

/** Undefined: no such noderole. */
export async function retryNoderole(database: Queryable, id: string): Promise<RetryAnswer | undefined> {
  const { rows } = await database.query<{ is_done: boolean; state: NoderoleState; blocked_by: string | null }>(
    'select is_done, state, blocked_by from cnapi_retry_noderole($1::uuid)',
    [id],
    { name: 'retry noderole' },
  );
  const [row] = rows;
  if (row === undefined) return undefined;
  return row.is_done ? { isDone: true } : { isDone: false, state: row.state, blockedBy: row.blocked_by };
}

/**
 * `required`: others require it. `runs`: a run of it has not ended. Undefined: no such noderole.
 */
export async function deleteNoderole(
  database: Queryable,
  id: string,
): Promise<'deleted' | 'required' | 'runs' | undefined> {
  const { rows } = await database.query<{ outcome: 'deleted' | 'required' | 'runs' }>(
    'select outcome from cnapi_delete_noderole($1::uuid)',
    [id],
    { name: 'delete noderole' },
  );
  return rows[0]?.outcome;
}

/** Whether some noderole has this role, or is in this deployment. */
export async function hasNoderolesOf(
  database: Queryable,
  { role, deploymentId }: { role?: string; deploymentId?: string },
): Promise<boolean> {
  const { rows } = await database.query<{ found: boolean }>(
    `select exists (select 1 from cnapi_noderoles n where n.role = $1::text or n.deployment_id = $2::uuid) as found`,
    [role ?? null, deploymentId ?? null],
    { name: 'find noderoles of definition' },
  );
  return rows[0]?.found === true;
}

/** How many noderoles are in each state. */
export async function countNoderoles(database: Queryable): Promise<Record<string, number>> {
  const { rows } = await database.query<{ state: string; count: number }>(
    'select n.state, count(*)::int as count from cnapi_noderoles n group by n.state',
    [],
    { name: 'count noderoles' },
  );
  return Object.fromEntries(rows.map(({ state, count }) => [state, count]));
}

/** What runs on a server now, and how many runs have not ended in all. */
export async function readServerRun(
  database: Queryable,
  serverUuid: string,
): Promise<{ run: ServerRun | undefined; openRuns: number }> {
  const { rows } = await database.query<{ open_runs: number } & { [Name in keyof ServerRun]: ServerRun[Name] | null }>(
    `select c.open_runs, r.id, n.id as "noderoleId", n.role, r.task as "taskId", r.started_at as "startedAt"
       from (select count(*)::int as open_runs from cnapi_noderole_runs where ended_at is null) as c
       left join cnapi_noderole_runs r on r.server_uuid = $1::uuid and r.ended_at is null
       left join cnapi_noderoles n on n.id = r.noderole`,
    [serverUuid],
    { name: 'read server run' },
  );
  const [row] = rows;
  if (row === undefined) return { openRuns: 0, run: undefined };
  const { open_runs: openRuns, ...run } = row;
  return { openRuns, run: run.id === null ? undefined : (run as ServerRun) };
}

/** A run that has not ended. */
export interface ServerRun {
  id: string;
  noderoleId: string;
  role: string;
  taskId: string | null;
  startedAt: Date;
}

/** Which roles have noderoles that are parents of which, in all deployments. */
export async function readRoleEdges(database: Queryable): Promise<{ parent: string; child: string }[]> {
  const { rows } = await database.query<{ parent: string; child: string }>(
    `select distinct p.role as parent, c.role as child from cnapi_noderole_edges e
       join cnapi_noderoles p on p.id = e.parent join cnapi_noderoles c on c.id = e.child`,
    [],
    { name: 'read role edges' },
  );
  return rows;
}
