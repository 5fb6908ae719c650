/** SQL of what an instance sends to the agents it holds, and of what they answer. */
import { withoutUndefined } from '../../../platform/defined-fields.ts';
import type { Queryable } from '../../../platform/postgres/database.ts';
import { MAX_TASK_TIMEOUT_MS } from '../../../protocol/limits.ts';
import type { PushPrepareFrame } from '../../../protocol/link/frames.ts';
import { VOTE_REASONS, type VoteReason } from '../../../protocol/push.ts';

/** A server whose agent is to be told another limit of its command, or to forget a job. */
export interface PushOrder extends NodeKey {
  what: 'timeout' | 'abort';
  /** Time limit of the command; only for `timeout`. */
  timeoutMs: number | null;
  /** Number of the job's change that set this limit; only for `timeout`. */
  change: number | null;
}

/** How many times the holder of a job has given its started nodes other limits. */
export interface TimeoutChanges {
  jobId: string;
  changes: number;
}

/** Lists, of these jobs (or of all), the open ones whose nodes were given other limits. */
export async function readTimeoutChanges(database: Queryable, jobs?: readonly string[]): Promise<TimeoutChanges[]> {
  const { rows } = await database.query<TimeoutChanges>(
    `select id as "jobId", timeout_changes as changes from cnapi_push_jobs
       where state <> 'ended' and timeout_changes > 0 and ($1::uuid[] is null or id = any ($1::uuid[]))`,
    [jobs ?? null],
  );
  return rows;
}

/** Whose orders are read: of some jobs, of some servers, or of all. */
export interface OrderSelection {
  jobs?: readonly string[];
  servers?: readonly string[];
}

/** Ordered by job and server: continue `after` the last one. */
interface OrderPage extends OrderSelection {
  after?: NodeKey | undefined;
  limit: number;
}

/** The servers that have not voted, whichever instance holds their agents. */
export async function readVoters(database: Queryable, { jobs, servers, after, limit }: OrderPage): Promise<NodeKey[]> {
  const { rows } = await database.query<NodeKey>(
    `select n.job as "jobId", n.server_uuid as "serverUuid"
       from cnapi_push_jobs j
       join cnapi_push_nodes n on n.job = j.id and n.state = 'new'
       where j.state in ('voting', 'running')
         and ($1::uuid[] is null or j.id = any ($1::uuid[]))
         and ($2::uuid[] is null or n.server_uuid = any ($2::uuid[]))
         and ($3::uuid is null or (n.job, n.server_uuid) > ($3::uuid, $4::uuid))
       order by n.job, n.server_uuid limit $5::int`,
    [jobs ?? null, servers ?? null, after?.jobId ?? null, after?.serverUuid ?? null, limit],
  );
  return rows;
}

/**
 * What agents are to be told, whichever instance holds them. Of changed limits reads those of
 * `servers`, and those of the jobs in `timeoutsSince`, each without the limits of its first
 * changes, which were read before.
 */
export async function readOrders(
  database: Queryable,
  { jobs, servers, after, limit, timeoutsSince = [] }: OrderPage & { timeoutsSince?: readonly TimeoutChanges[] },
): Promise<PushOrder[]> {
  const { rows } = await database.query<PushOrder>(
    `select e.job as "jobId", e.server_uuid as "serverUuid", e.what, e.timeout_ms as "timeoutMs", e.change
       from (
         select n.job, n.server_uuid, 'timeout' as what, n.timeout_ms, n.timeout_change as change
           from cnapi_push_nodes n
           where n.timeout_change > 0 and n.state in ('ready', 'running') and n.server_uuid = any ($2::uuid[])
         union all
         select n.job, n.server_uuid, 'timeout', n.timeout_ms, n.timeout_change
           from unnest($3::uuid[], $4::int[]) as s (job, changes)
           join cnapi_push_nodes n on n.job = s.job and n.timeout_change > s.changes
             and n.timeout_change > 0 and n.state in ('ready', 'running')
         union all
         select b.job, b.server_uuid, 'abort', null, null from cnapi_push_busy b
           where b.rehab_since is not null
             and ($1::uuid[] is null or b.job = any ($1::uuid[]))
             and ($2::uuid[] is null or b.server_uuid = any ($2::uuid[]))
       ) as e
       where ($5::uuid is null or (e.job, e.server_uuid) > ($5::uuid, $6::uuid))
       order by e.job, e.server_uuid limit $7::int`,
    [
      jobs ?? null,
      servers ?? null,
      timeoutsSince.map(({ jobId }) => jobId),
      timeoutsSince.map(({ changes }) => changes),
      after?.jobId ?? null,
      after?.serverUuid ?? null,
      limit,
    ],
  );
  return rows;
}

interface PrepareRow {
  id: string;
  command: string;
  options: Pick<PushPrepareFrame, 'user' | 'dir' | 'env'> & { capture?: boolean };
  file: string | null;
}

/** What the agents of these jobs are asked, by job, without those that take no more votes. */
export async function readPrepares(
  database: Queryable,
  jobs: readonly string[],
): Promise<Map<string, PushPrepareFrame>> {
  const { rows } = await database.query<PrepareRow>(
    `select id, command, options, encode(file, 'base64') as file
       from cnapi_push_jobs where id = any ($1::uuid[]) and state in ('voting', 'running')`,
    [jobs],
  );
  return new Map(rows.map((row) => [row.id, prepareOf(row)]));
}

/**
 * An agent waits for its start as long as any job may run: the timeouts of this one may change
 * while it waits. If the job ends, its server is in rehab, and the agent is told.
 */
function prepareOf({ id, command, options, file }: PrepareRow): PushPrepareFrame {
  const { user, dir, env, capture = false } = options;
  return {
    type: 'push_prepare',
    job: id,
    command,
    ...withoutUndefined({ user, dir, env }),
    ...(file === null ? {} : { file: file.replaceAll('\n', '') }),
    capture,
    readyMs: MAX_TASK_TIMEOUT_MS,
  };
}

export interface Vote {
  jobId: string;
  serverUuid: string;
  /** The process of the agent that votes. */
  incarnation: string;
  ready: boolean;
  reason: string | undefined;
  message: string | undefined;
  busyWith: string | undefined;
}

/** `refused`: the agent is ready but takes no part. `locked`: store it a little later. */
type VoteResult = 'stored' | 'refused' | 'locked';

/** Stores votes of different nodes; the results are in their order. */
export async function storeVotes(database: Queryable, votes: readonly Vote[]): Promise<VoteResult[]> {
  const reasons = votes.map(reasonOf);
  const { rows } = await database.query<{ job: string; server_uuid: string; what: VoteResult }>(
    `select * from cnapi_store_push_votes($1::uuid[], $2::uuid[], $3::uuid[], $4::boolean[], $5::text[], $6::text[],
       $7::uuid[])`,
    [
      votes.map(({ jobId }) => jobId),
      votes.map(({ serverUuid }) => serverUuid),
      votes.map(({ incarnation }) => incarnation),
      votes.map(({ ready }) => ready),
      reasons,
      votes.map(({ reason, message }, index) => message ?? (reasons[index] === 'refused' ? reason : null) ?? null),
      votes.map(({ busyWith }) => busyWith ?? null),
    ],
    { name: 'store push votes' },
  );
  const results = new Map(rows.map(({ job: jobId, server_uuid, what }) => [`${jobId} ${server_uuid}`, what]));
  return votes.map(({ jobId, serverUuid }) => results.get(`${jobId} ${serverUuid}`) ?? 'stored');
}

/** Agents of another version may have others; their messages are kept. */
function reasonOf({ ready, reason }: Vote): VoteReason | null {
  return ready ? null : (VOTE_REASONS.find((one) => one === reason) ?? 'refused');
}

export interface NodeKey {
  jobId: string;
  serverUuid: string;
}

/** These servers leave rehab. Returns those whose rows are locked. */
export async function endRehab(database: Queryable, releases: readonly NodeKey[]): Promise<Set<string>> {
  const { rows } = await database.query<{ server_uuid: string }>(
    'select cnapi_end_push_rehab($1::uuid[], $2::uuid[]) as server_uuid',
    [releases.map(({ serverUuid }) => serverUuid), releases.map(({ jobId }) => jobId)],
  );
  return new Set(rows.map(({ server_uuid }) => server_uuid));
}

/**
 * Ends the rehab of at most `limit` servers that were removed and have no agent, because no agent
 * will answer. If one returns nevertheless, it votes `busy` and is told to forget the job. Returns
 * their number.
 */
export async function endRehabOfRemoved(database: Queryable, limit: number): Promise<number> {
  const { rowCount } = await database.query(
    `delete from cnapi_push_busy where server_uuid in (
       select b.server_uuid from cnapi_push_busy b
         where b.rehab_since is not null
           and not exists (select 1 from cnapi_servers s where s.uuid = b.server_uuid)
           and not exists (select 1 from cnapi_presence(array[b.server_uuid]) as p where p.run is not null)
         order by b.server_uuid limit $1::int for update of b skip locked)`,
    [limit],
  );
  return rowCount;
}

/**
 * Returns those of these nodes that have not ended: their agents may be in the job.
 */
export async function readOpenNodes(database: Queryable, nodes: readonly NodeKey[]): Promise<Set<string>> {
  const { rows } = await database.query<{ key: string }>(
    `select n.job || ' ' || n.server_uuid as key
       from unnest($1::uuid[], $2::uuid[]) as a (job, server_uuid)
       join cnapi_push_nodes n on n.job = a.job and n.server_uuid = a.server_uuid
       where cnapi_is_push_node_open(n.state)`,
    [nodes.map(({ jobId }) => jobId), nodes.map(({ serverUuid }) => serverUuid)],
  );
  return new Set(rows.map(({ key }) => key));
}
