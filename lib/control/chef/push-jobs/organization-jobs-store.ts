/** SQL of the jobs of an organization, in the form that Chef shows. */

import type { Queryable } from '../../../platform/postgres/database.ts';
import { inMicroseconds } from '../../../platform/postgres/sql-text.ts';
import type { ChefJobStatus } from '../../../protocol/api/chef.ts';
import type { Cursor } from '../../../protocol/api/contract/cursor.ts';
import type { NodeStatus } from '../../../protocol/api/push/job-schemas.ts';
import { CURSOR, NODE_COUNTS, type PushJobPage, readJobPage } from '../../push/job-page-store.ts';
import type { PushOptions } from '../../push/push-store.ts';

export interface OrganizationJob {
  id: string;
  command: string;
  /** Options that everybody may see. */
  options: PushOptions;
  hasFile: boolean;
  /** The name of who asked for it. */
  requestor: string | null;
  nodeCount: number;
  quorum: number;
  runTimeoutMs: number;
  status: ChefJobStatus;
  createdAt: Date;
  stateSince: Date;
  /** Microseconds since 1970. */
  createdAtUs: string;
  /** The number of the last event of its feed. */
  lastEvent: number;
  /** Time since the job's end; null before it. */
  endedMs: number | null;
  /** Only in lists: where the job is. */
  cursor: Cursor;
}

/**
 * The status that Chef shows: a job that ends shows what it was doing, and one that waits for its
 * ticket has asked nobody yet. An index has this expression (001-push-jobs.sql).
 */
const STATUS = `coalesce(j.outcome,
  case when j.state = 'running' or (j.state = 'aborting' and j.has_run) then 'running' else 'voting' end)`;

const COLUMNS = `j.id, j.command, coalesce(j.masked_options, j.options) as options, j.has_file as "hasFile",
  j.requestor, j.node_count as "nodeCount", j.quorum, j.run_timeout_ms as "runTimeoutMs",
  ${STATUS} as status, j.last_event as "lastEvent", j.created_at as "createdAt", j.state_since as "stateSince",
  ${inMicroseconds('j.created_at')} as "createdAtUs",
  case when j.state = 'ended' then (1000 * extract(epoch from cnapi_now() - j.state_since))::float8 end as "endedMs", ${CURSOR} as cursor`;

/** Undefined also for the job of another organization. */
export async function readOrganizationJob(
  database: Queryable,
  organizationUuid: string,
  id: string,
): Promise<OrganizationJob | undefined> {
  const { rows } = await database.query<OrganizationJob>(
    `select ${COLUMNS} from cnapi_push_jobs j where j.id = $1::uuid and j.organization = $2::text`,
    [id, organizationUuid],
    { name: 'read push job of organization' },
  );
  return rows[0];
}

/**
 * The unfinished jobs of all organizations, except those whose abort was requested. Their number is
 * bounded by the limit of unfinished jobs.
 */
export async function readUnfinishedPushJobs(database: Queryable): Promise<{ id: string; organizationUuid: string }[]> {
  const { rows } = await database.query<{ id: string; organizationUuid: string }>(
    `select j.id, j.organization as "organizationUuid" from cnapi_push_jobs j
       where j.state <> 'ended' and j.organization is not null and j.abort_requested is distinct from 'hard'`,
    [],
    { name: 'read unfinished push jobs of organizations' },
  );
  return rows;
}

export interface OrganizationJobFilter {
  status?: ChefJobStatus | undefined;
  /** Where the page before ended. */
  after?: Cursor | undefined;
  limit: number;
  bytes: number;
  withCounts: boolean;
}

export interface CountedJob extends OrganizationJob {
  /** Number of nodes by state, if they were asked for. */
  counts: Partial<Record<NodeStatus, number>> | null;
}

/** Nodes that are counted for one page. */
const MAX_COUNTED = 50_000;

/** Lists the jobs of an organization, newest first. */
export function listOrganizationJobs(
  database: Queryable,
  organizationUuid: string,
  { status, after, limit, bytes, withCounts }: OrganizationJobFilter,
): Promise<PushJobPage<CountedJob>> {
  const columns = `${COLUMNS}, ${withCounts ? NODE_COUNTS : 'null'} as counts`;
  const where = `j.organization = $1::text and ($2::text is null or $2::text = ${STATUS})`;
  const nodes = withCounts ? MAX_COUNTED : Number.MAX_SAFE_INTEGER;
  const page = { after, limit, bytes, nodes };
  return readJobPage(database, { columns, where, values: [organizationUuid, status ?? null] }, page);
}

/** The names of the nodes in each state, in order. */
export async function readNodeNames(
  database: Queryable,
  jobId: string,
): Promise<{ state: NodeStatus; names: string[] }[]> {
  const { rows } = await database.query<{ state: NodeStatus; names: string[] }>(
    `select state, array_agg(name order by name) as names from cnapi_push_nodes where job = $1::uuid group by state`,
    [jobId],
    { name: 'read node names of push job' },
  );
  return rows;
}

/** The contents of the file that the job brings, until the job has ended. */
export async function readPushFile(database: Queryable, jobId: string): Promise<Buffer | undefined> {
  const { rows } = await database.query<{ file: Buffer | null }>(
    'select file from cnapi_push_jobs where id = $1::uuid',
    [jobId],
    { name: 'read file of push job' },
  );
  return rows[0]?.file ?? undefined;
}

export interface NamedNode {
  state: NodeStatus;
  task: string | null;
}

export async function readNamedNode(database: Queryable, jobId: string, name: string): Promise<NamedNode | undefined> {
  const { rows } = await database.query<NamedNode>(
    'select state, task from cnapi_push_nodes where job = $1::uuid and name = $2::text',
    [jobId, name],
    { name: 'read named node of push job' },
  );
  return rows[0];
}
