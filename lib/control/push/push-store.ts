/** SQL of push jobs as callers see them: create, read, list, abort, delete. */
import type { Queryable } from '../../platform/postgres/database.ts';
import { Parameters, type StatementPart, statementName } from '../../platform/sql-text.ts';
import type { PushJob as PushJobView } from '../../protocol/api/push-jobs.ts';
import type { JobOutcome, JobState, NodeState, statusOf } from './push-job.ts';
import type { WantedTicket } from './ticket-store.ts';

/** The kind of the duties that carry out push jobs. The id of the duty is that of the job. */
export const PUSH_DUTY = 'push-job';

export interface NewNode {
  serverUuid: string;
  name: string;
  /** The caller may not run commands there: the node fails at once. */
  isDenied?: boolean;
}

/** What the command is given, beside its file. */
export interface PushOptions {
  user?: string | undefined;
  dir?: string | undefined;
  env?: Readonly<Record<string, string>> | undefined;
  capture?: boolean | undefined;
}

export interface NewPushJob {
  id: string;
  /** The uuid of the organization; a job without one is of /push-jobs alone. */
  organization: string | undefined;
  /** The name of its user or client. */
  requestor?: string | undefined;
  command: string;
  options: PushOptions;
  /** Shown instead of `options` if these hold secrets. */
  maskedOptions: PushOptions | undefined;
  file: Buffer | undefined;
  nodes: readonly NewNode[];
  /** A number of nodes. */
  quorum: number;
  /** If the quorum is a share of the nodes: it follows nodes that are added. */
  quorumPercent?: number | undefined;
  concurrency: number | undefined;
  /** Nodes that may start per second. */
  startRate?: number | undefined;
  maxFailures: number | undefined;
  votingTimeoutMs: number;
  runTimeoutMs: number;
  /** The limit of each command; undefined: only that of the job. */
  nodeTimeoutMs?: number | undefined;
  abortTimeoutMs: number;
  actor: string | undefined;
  /** It asks its agents when it has this. */
  ticket?: WantedTicket | undefined;
  /** A record of who asks for it, written in the same statement. */
  record?: StatementPart | undefined;
  /** A condition, evaluated in the same statement: nothing is created unless it is true. */
  guard?: StatementPart | undefined;
}

/** Jobs that have not ended: an instance carries out 2,000. */
export const MAX_UNFINISHED = { inAll: 2_000, ofOrganization: 500 } as const;
const unfinished = (most: number, where: string) =>
  `(select count(*) from (select from cnapi_push_jobs where state <> 'ended' and ${where} limit ${most}) as j) < ${most}`;
const HAS_ROOM = `${unfinished(MAX_UNFINISHED.inAll, 'true')}
         and ($2::text is null or ${unfinished(MAX_UNFINISHED.ofOrganization, 'organization = $2::text')})`;

/** False if the guard was not met, or there are as many jobs as may be. Creates the job, its nodes and its duty. Nodes whose servers are not running do not take part. */
export async function createPushJob(database: Queryable, job: NewPushJob): Promise<boolean> {
  const parameters = new Parameters([
    job.id,
    job.organization ?? null,
    job.command,
    JSON.stringify(job.options),
    job.maskedOptions === undefined ? null : JSON.stringify(job.maskedOptions),
    job.file ?? null,
    job.actor ?? null,
    job.quorum,
    job.concurrency ?? null,
    job.maxFailures ?? null,
    job.votingTimeoutMs,
    job.runTimeoutMs,
    job.abortTimeoutMs,
    job.nodes.map(({ serverUuid }) => serverUuid),
    job.nodes.map(({ name }) => name),
    job.nodes.map(({ isDenied = false }) => isDenied),
    PUSH_DUTY,
    job.startRate ?? null,
    job.nodeTimeoutMs ?? null,
    job.quorumPercent ?? null,
    job.requestor ?? null,
    job.ticket === undefined ? null : JSON.stringify(toShown(job.ticket)),
  ]);
  const recorded = job.record === undefined ? '' : `recorded as (${job.record(parameters)}), `;
  const { rowCount } = await database.query(
    `with ${recorded}guard as materialized (
       select case when ${HAS_ROOM} then ${job.guard?.(parameters) ?? 'true'} else false end as is_met
     ), made as (
       insert into cnapi_push_jobs (id, organization, command, options, masked_options, file, actor, node_count, quorum,
           concurrency, max_failures, voting_timeout_ms, run_timeout_ms, abort_timeout_ms, start_rate, node_timeout_ms,
           quorum_percent, requestor, ticket, state)
         select $1::uuid, $2::text, $3::text, $4::json, $5::json, $6::bytea, $7::text, cardinality($14::uuid[]), $8::int,
             $9::int, $10::int, $11::int, $12::int, $13::int, $18::float8, $19::int, $20::float8, $21::text, $22::jsonb,
             case when $22::jsonb is null then 'voting' else 'waiting' end
           from guard where is_met
     ), nodes as (
       insert into cnapi_push_nodes (job, server_uuid, name, state, reason)
         select $1::uuid, n.server_uuid, n.name,
             case when n.denied then 'failed' when p.run is null and $22::jsonb is null then 'unavailable' else 'new' end,
             case when n.denied then 'permission-denied' when p.run is null and $22::jsonb is null then 'down' end
           from unnest($14::uuid[], $15::text[], $16::boolean[]) as n (server_uuid, name, denied)
           join cnapi_presence($14::uuid[]) as p on p.server_uuid = n.server_uuid
           join guard on guard.is_met
           order by n.server_uuid
     ), tickets as (
       insert into cnapi_push_tickets (job, server_uuid, scope, id, expires_in, timeout_ms, actor)
         select $1::uuid, t.server_uuid, t.scope, t.id, t.expires_in, t.timeout_ms, $7::text
           from jsonb_to_record($22::jsonb) as t (server_uuid text, scope text, id text, expires_in int, timeout_ms int)
             join guard on guard.is_met
           where $22::jsonb is not null
     )
     select cnapi_create_duties(array[$1::uuid], $17::text) from guard where is_met`,
    parameters.values,
    { name: statementName(job.guard === undefined ? 'create push job' : 'create push job if', job.record) },
  );
  return rowCount > 0;
}

/** As callers see it; `uuid` is added once it exists. */
type ShownTicket = NonNullable<PushJobView['ticket']>;

const toShown = ({ serverUuid, scope, id, expiresInSeconds, timeoutMs }: WantedTicket): ShownTicket => ({
  ...{ server_uuid: serverUuid, scope, id, expires_in: expiresInSeconds, timeout_ms: timeoutMs },
});

export interface PushJobRow {
  id: string;
  organization: string | null;
  command: string;
  options: PushOptions;
  has_file: boolean;
  actor: string | null;
  node_count: number;
  quorum: number;
  concurrency: number | null;
  start_rate: number | null;
  max_failures: number | null;
  voting_timeout_ms: number;
  run_timeout_ms: number;
  node_timeout_ms: number | null;
  ticket: ShownTicket | null;
  state: JobState;
  outcome: JobOutcome | null;
  reason: string | null;
  created_at: Date;
  state_since: Date;
  /** Number of nodes by state. */
  counts: Partial<Record<NodeState, number>>;
}

const columns = `j.id, j.organization, j.command, coalesce(j.masked_options, j.options) as options, j.file is not null as has_file,
  j.actor, j.node_count, j.quorum, j.concurrency, j.start_rate, j.max_failures, j.voting_timeout_ms, j.run_timeout_ms, j.node_timeout_ms, j.ticket, j.state, j.outcome,
  j.reason, j.created_at, j.state_since,
  (select coalesce(json_object_agg(c.state, c.count), '{}')
    from (select n.state, count(*)::int as count from cnapi_push_nodes n where n.job = j.id group by n.state) as c) as counts`;

export async function readPushJob(database: Queryable, id: string): Promise<PushJobRow | undefined> {
  const { rows } = await database.query<PushJobRow>(`select ${columns} from cnapi_push_jobs j where j.id = $1::uuid`, [
    id,
  ]);
  return rows[0];
}

export interface JobFilter {
  status?: ReturnType<typeof statusOf> | undefined;
  /** The last job of the page before. */
  after?: string | undefined;
  limit: number;
}

/** The newest first. */
export async function listPushJobs(database: Queryable, { status, after, limit }: JobFilter): Promise<PushJobRow[]> {
  const { rows } = await database.query<PushJobRow>(
    `select ${columns} from cnapi_push_jobs j
       where ($1::text is null or coalesce(j.outcome, j.state) = $1::text)
         and ($2::uuid is null or (j.created_at, j.id) < (select l.created_at, l.id from cnapi_push_jobs l where l.id = $2::uuid))
       order by j.created_at desc, j.id desc limit $3::int`,
    [status ?? null, after ?? null, limit],
  );
  return rows;
}

export interface PushNodeRow {
  server_uuid: string;
  name: string;
  state: NodeState;
  reason: string | null;
  message: string | null;
  busy_with: string | null;
  task: string | null;
  exit_code: number | null;
  updated_at: Date;
}

export const nodeColumns = 'server_uuid, name, state, reason, message, busy_with, task, exit_code, updated_at';

const MAX_NODES = 1_000;

/** In order of the servers' uuids. */
export async function listPushNodes(
  database: Queryable,
  job: string,
  {
    state,
    after,
    limit = MAX_NODES,
  }: { state?: NodeState | undefined; after?: string | undefined; limit?: number | undefined },
): Promise<PushNodeRow[]> {
  const { rows } = await database.query<PushNodeRow>(
    `select ${nodeColumns} from cnapi_push_nodes
       where job = $1::uuid and ($2::text is null or state = $2::text) and ($3::uuid is null or server_uuid > $3::uuid)
       order by server_uuid limit $4::int`,
    [job, state ?? null, after ?? null, limit],
  );
  return rows;
}

/** `soft`: commands that run may end. False if the job has ended or does not exist. */
export async function requestAbort(
  database: Queryable,
  job: string,
  { how, actor, record }: { how: 'soft' | 'hard'; actor: string | undefined; record?: StatementPart | undefined },
): Promise<boolean> {
  const parameters = new Parameters([job, how, actor ?? null]);
  const recorded = record === undefined ? '' : `with recorded as (${record(parameters)}) `;
  const { rowCount } = await database.query(
    `${recorded}update cnapi_push_jobs j
       set abort_requested = case when abort_requested = 'hard' then 'hard' else $2::text end,
         abort_actor = coalesce(abort_actor, $3::text)
       where id = $1::uuid and state <> 'ended'`,
    parameters.values,
    { name: statementName('request abort of push job', record) },
  );
  return rowCount > 0;
}

/** Deletes a job that has ended, and its nodes. The output of its commands stays with their tasks. */
export async function deletePushJob(database: Queryable, id: string): Promise<boolean> {
  const { rowCount } = await database.query(
    `delete from cnapi_push_jobs where id = $1::uuid and (state || '') = 'ended'`,
    [id],
  );
  return rowCount > 0;
}

/** Deletes some jobs that ended more than `days` ago; returns how many. */
export async function deleteEndedPushJobs(database: Queryable, days: number, most: number): Promise<number> {
  const { rowCount } = await database.query(
    `delete from cnapi_push_jobs where state = 'ended' and id = any (array(
       select id from cnapi_push_jobs where state = 'ended' and state_since < cnapi_now() - $1::int * interval '1 day'
         order by state_since limit $2::int for update skip locked))`,
    [days, most],
  );
  return rowCount;
}

/** What a server does for push jobs, as the specification names it. */
export type NodeAvailability = 'idle' | 'in-job' | 'rehab' | 'down';

export interface NodeStateRow {
  server_uuid: string;
  state: NodeAvailability;
  job: string | null;
  /** When its server was last lost, or came back; null if it has never been there. */
  since: Date | null;
}

export async function readNodeStates(database: Queryable, servers: readonly string[]): Promise<NodeStateRow[]> {
  const { rows } = await database.query<NodeStateRow>(
    `select p.server_uuid, b.job, p.since,
         case when p.run is null then 'down' when b.rehab_since is not null then 'rehab'
           when b.job is not null then 'in-job' else 'idle' end as state
       from cnapi_presence($1::uuid[]) as p left join cnapi_push_busy b on b.server_uuid = p.server_uuid`,
    [servers],
  );
  return rows;
}
