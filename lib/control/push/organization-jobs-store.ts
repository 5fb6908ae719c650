/** SQL of the jobs of an organization, in the form that the reference shows. */
import type { Queryable } from '../../platform/postgres/database.ts';
import type { JobOutcome, JobState, NodeState } from './push-job.ts';
import type { PushOptions } from './push-store.ts';

export interface OrganizationJob {
  id: string;
  command: string;
  /** Those that everybody may see. */
  options: PushOptions;
  hasFile: boolean;
  /** The name of who asked for it. */
  requestor: string | null;
  nodeCount: number;
  quorum: number;
  runTimeoutMs: number;
  state: JobState;
  outcome: JobOutcome | null;
  /** The quorum was reached. */
  hasRun: boolean;
  createdAt: Date;
  stateSince: Date;
  /** As the feed shows it. */
  createdText: string;
  /** The number of the last event of its feed. */
  fed: number;
  /** Since its end; null before. */
  endedMs: number | null;
}

const COLUMNS = `j.id, j.command, coalesce(j.masked_options, j.options) as options, j.file is not null as "hasFile",
  j.requestor, j.node_count as "nodeCount", j.quorum, j.run_timeout_ms as "runTimeoutMs", j.state, j.outcome,
  j.has_run as "hasRun", j.fed, j.created_at as "createdAt", j.state_since as "stateSince",
  to_char(j.created_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') || 'Z' as "createdText",
  case when j.state = 'ended' then (1000 * extract(epoch from cnapi_now() - j.state_since))::float8 end as "endedMs"`;

export async function readOrganizationJob(
  database: Queryable,
  organization: string,
  id: string,
): Promise<OrganizationJob | undefined> {
  const { rows } = await database.query<OrganizationJob>(
    `select ${COLUMNS} from cnapi_push_jobs j where j.id = $1::uuid and j.organization = $2::text`,
    [id, organization],
    { name: 'read push job of organization' },
  );
  return rows[0];
}

export interface OrganizationJobFilter {
  /** As callers see it: a job that ends counts as what it was before. */
  status?: string | undefined;
  /** The last job of the page before. */
  after?: string | undefined;
  limit: number;
  bytes: number;
  withCounts: boolean;
}

export interface CountedJob extends OrganizationJob {
  /** Number of nodes by state, if they were asked for. */
  counts: Partial<Record<NodeState, number>> | null;
}

/**
 * The newest first, at most `limit`, and only the first of them whose texts have `bytes` together.
 * `hasMore`: there may be more.
 */
export async function listOrganizationJobs(
  database: Queryable,
  organization: string,
  { status, after, limit, bytes, withCounts }: OrganizationJobFilter,
): Promise<{ jobs: CountedJob[]; hasMore: boolean }> {
  const { rows } = await database.query<CountedJob & { found: number }>(
    `select ${COLUMNS}, j.found::int, case when $6::boolean then (
         select coalesce(json_object_agg(c.state, c.count), '{}')
           from (select n.state, count(*)::int as count from cnapi_push_nodes n where n.job = j.id group by n.state) as c
       ) end as counts
       from (
         select w.*, count(*) over () as found,
             sum(w.size) over (order by w.created_at desc, w.id desc) - w.size as before
           from (
             select *, octet_length(command) + octet_length(options::text) as size from cnapi_push_jobs j
               where j.organization = $1::text
                 and ($2::text is null or $2::text = coalesce(j.outcome,
                   case when j.state <> 'aborting' then j.state when j.has_run then 'running' else 'voting' end))
                 and ($3::uuid is null
                   or (j.created_at, j.id) < (select l.created_at, l.id from cnapi_push_jobs l where l.id = $3::uuid))
               order by j.created_at desc, j.id desc limit $4::int
           ) as w
       ) as j
       where j.before < $5::int
       order by j.created_at desc, j.id desc`,
    [organization, status ?? null, after ?? null, limit, bytes, withCounts],
    { name: 'list push jobs of organization' },
  );
  const found = rows[0]?.found ?? 0;
  return { jobs: rows.map(({ found: _, ...job }) => job), hasMore: rows.length < found || found === limit };
}

/** The names of the nodes in each state, in order. */
export async function readNodeNames(
  database: Queryable,
  job: string,
): Promise<{ state: NodeState; names: string[] }[]> {
  const { rows } = await database.query<{ state: NodeState; names: string[] }>(
    `select state, array_agg(name order by name) as names from cnapi_push_nodes where job = $1::uuid group by state`,
    [job],
    { name: 'read node names of push job' },
  );
  return rows;
}

/** The contents of the file that the job brings. */
export async function readPushFile(database: Queryable, job: string): Promise<Buffer | undefined> {
  const { rows } = await database.query<{ file: Buffer | null }>(
    'select file from cnapi_push_jobs where id = $1::uuid',
    [job],
    { name: 'read file of push job' },
  );
  return rows[0]?.file ?? undefined;
}

export interface NamedNode {
  state: NodeState;
  task: string | null;
}

export async function readNamedNode(database: Queryable, job: string, name: string): Promise<NamedNode | undefined> {
  const { rows } = await database.query<NamedNode>(
    'select state, task from cnapi_push_nodes where job = $1::uuid and name = $2::text',
    [job, name],
    { name: 'read named node of push job' },
  );
  return rows[0];
}
