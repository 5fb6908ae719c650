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
  /** Noderoles in all deployments. */
  total: number;
}

const boundColumns = `n.id, n.role, n.server_uuid as "serverUuid", n.deployment_id as "deploymentId", n.cohort`;

/** What is bound in these deployments and on these servers. */
export async function readGraph(
  database: Queryable,
  { deploymentIds, servers }: { deploymentIds: readonly string[]; servers: readonly string[] },
): Promise<GraphSnapshot> {
  // The version first: a graph that changes in between makes the plan fail, not wrong.
  const { rows: versions } = await database.query<{ graph_version: string; total: number }>(
    `select coalesce((select a.graph_version from cnapi_annealer a), 0) as graph_version,
       (select count(*)::int from cnapi_noderoles) as total`,
    [],
    { name: 'read annealer graph version' },
  );
  const { rows } = await database.query<BoundNoderole>(
    `select ${boundColumns} from cnapi_noderoles n
       where n.deployment_id = any ($1::uuid[]) or n.server_uuid = any ($2::uuid[])
       order by n.cohort, n.id`,
    [deploymentIds, servers],
    { name: 'read annealer graph' },
  );
  const { graph_version: version = '0', total = 0 } = versions[0] ?? {};
  return { version, total, bound: rows };
}

/** False: the graph has changed since its version was read; nothing was stored. */
export async function bindNoderoles(
  database: Queryable,
  version: string,
  { noderoles, edges }: BindingPlan,
): Promise<boolean> {
  const { rows } = await database.query<{ done: boolean }>(
    `select cnapi_bind_noderoles($1::bigint, $2::uuid[], $3::text[], $4::uuid[], $5::uuid[], $6::int[],
       $7::uuid[], $8::uuid[], $9::boolean[]) as done`,
    [
      version,
      noderoles.map(({ id }) => id),
      noderoles.map(({ role }) => role),
      noderoles.map(({ serverUuid }) => serverUuid),
      noderoles.map(({ deploymentId }) => deploymentId),
      noderoles.map(({ cohort }) => cohort),
      edges.map(({ parentId }) => parentId),
      edges.map(({ childId }) => childId),
      edges.map(({ isSoft }) => isSoft),
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
  culprit: string | null;
  is_stale: boolean;
  run_count: number;
  failures: number;
  /** How long it is not claimed because an attempt has failed. */
  pause_ticks: number;
  error: { code: string; message: string } | null;
  state_since: Date;
}

const columns = `n.id, n.role, n.server_uuid, n.deployment_id, n.state, n.cohort, n.culprit, n.is_stale, n.run_count,
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
export interface WholeNoderole extends NoderoleRow {
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
  is_soft: boolean;
}

/** Bounds the neighbours in an answer. */
const MAX_NEIGHBOURS = 200;

const neighbours = (of: 'parent' | 'child') => {
  const own = of === 'parent' ? 'child' : 'parent';
  return `(select coalesce(json_agg(json_build_object('id', o.id, 'role', o.role, 'server_uuid', o.server_uuid,
      'state', o.state, 'is_soft', o.is_soft)), '[]')
    from (select m.id, m.role, m.server_uuid, m.state, e.is_soft from cnapi_noderole_edges e
      join cnapi_noderoles m on m.id = e.${of} where e.${own} = n.id
      order by m.cohort, m.id limit ${MAX_NEIGHBOURS}) as o)`;
};

export async function readNoderole(database: Queryable, id: string): Promise<WholeNoderole | undefined> {
  const { rows } = await database.query<WholeNoderole>(
    `select ${columns}, n.proposed_data, n.committed_data, n.wall,
         ${neighbours('parent')} as parents, ${neighbours('child')} as children
       from cnapi_noderoles n where n.id = $1::uuid`,
    [id],
    { name: 'read noderole' },
  );
  return rows[0];
}

/**
 * Data for the next commit; data equal to the committed one proposes nothing. False: no such
 * noderole.
 */
export async function proposeNoderoleData(database: Queryable, id: string, data: JsonObject): Promise<boolean> {
  const { rowCount } = await database.query(
    `update cnapi_noderoles n set proposed_data = nullif($2::jsonb, n.committed_data) where n.id = $1::uuid`,
    [id, JSON.stringify(data)],
    { name: 'propose noderole data' },
  );
  return rowCount > 0;
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

export type RetryAnswer = { isDone: true } | { isDone: false; state: NoderoleState; culprit: string | null };

/** Undefined: no such noderole. */
export async function retryNoderole(database: Queryable, id: string): Promise<RetryAnswer | undefined> {
  const { rows } = await database.query<{ is_done: boolean; state: NoderoleState; culprit: string | null }>(
    'select is_done, state, culprit from cnapi_retry_noderole($1::uuid)',
    [id],
    { name: 'retry noderole' },
  );
  const [row] = rows;
  if (row === undefined) return undefined;
  return row.is_done ? { isDone: true } : { isDone: false, state: row.state, culprit: row.culprit };
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
