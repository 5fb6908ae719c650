/** SQL of push jobs as callers see them: create, read, list, abort, delete. */
import { type Queryable, sqlStateOf } from '../../platform/postgres/database.ts';
import {
  combineStatement,
  SqlParameters,
  type StatementPart,
  statementName,
} from '../../platform/postgres/sql-text.ts';
import type { Cursor } from '../../protocol/api/contract/cursor.ts';
import { idRangeOf } from '../../protocol/api/contract/id-prefix.ts';
import type { NodeStatus, PushJob } from '../../protocol/api/push/job-schemas.ts';
import type { NodeReason } from '../../protocol/push.ts';
import type { AuditRecordPart } from '../audit-part.ts';
import { END_DETAILS, newJobDetails, type TargetSelection } from './audit-details.ts';
import { CURSOR, NODE_COUNTS, type PushJobPage, readJobPage } from './job-page-store.ts';
import type { PushJobOutcome, PushJobState, toJobStatus } from './push-job.ts';
import type { WantedTicket } from './tickets/ticket-store.ts';

/** The kind of the duties that carry out push jobs. The id of the duty is that of the job. */
export const PUSH_DUTY = 'push-job';

export interface NewNode {
  serverUuid: string;
  name: string;
  /** The caller may not run commands there: the node fails immediately. */
  isDenied?: boolean;
}

/** What the command is given, beside its file. */
export interface PushOptions {
  user?: string | undefined;
  dir?: string | undefined;
  env?: Readonly<Record<string, string>> | undefined;
  capture?: boolean | undefined;
}

export interface RequestKey {
  key: string;
  /** Who asks: other callers may use the same key. */
  actor: string | undefined;
  /** Covers everything that distinguishes one request from another. */
  hash: string;
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
  /** How the nodes were selected, for the audit; undefined if the caller named them. */
  selection?: TargetSelection | undefined;
  /** How many nodes must be ready. */
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
  /** The job starts its vote once it holds this ticket. */
  ticket?: WantedTicket | undefined;
  /** The idempotency key of the request that creates the job. */
  repeat?: RequestKey | undefined;
  /** A record of who asks for it, written in the same statement. */
  record?: AuditRecordPart | undefined;
  /** The schedule that a caller runs, for the audit. */
  schedule?: string | undefined;
  guard?: PushJobGuard | undefined;
}

/** A condition, evaluated in the same statement: nothing is created unless it is true. */
export interface PushJobGuard {
  /** The same name always has the same text. */
  name: string;
  condition: StatementPart;
}

const FOREIGN_KEY_VIOLATION = '23503';
/** Jobs that have not ended: an instance carries out 2,000. */
export const MAX_UNFINISHED = { inAll: 2_000, ofOrganization: 500 } as const;
const unfinished = (limit: number, where: string) =>
  `(select count(*) from (select from cnapi_push_jobs where state <> 'ended' and ${where} limit ${limit}) as j) < ${limit}`;
const HAS_ROOM = `${unfinished(MAX_UNFINISHED.inAll, 'true')}
         and ($2::text is null or ${unfinished(MAX_UNFINISHED.ofOrganization, 'organization = $2::text')})`;

/** The columns of a job that hold what the caller asked for. */
function wantedColumns(job: NewPushJob) {
  return {
    id: job.id,
    organization: job.organization,
    command: job.command,
    options: job.options,
    masked_options: job.maskedOptions,
    actor: job.actor,
    requestor: job.requestor,
    quorum: job.quorum,
    quorum_percent: job.quorumPercent,
    concurrency: job.concurrency,
    start_rate: job.startRate,
    max_failures: job.maxFailures,
    voting_timeout_ms: job.votingTimeoutMs,
    run_timeout_ms: job.runTimeoutMs,
    node_timeout_ms: job.nodeTimeoutMs,
    abort_timeout_ms: job.abortTimeoutMs,
    ticket: job.ticket && toShown(job.ticket),
    idempotency_key: job.repeat?.key,
    request_hash: job.repeat?.hash,
  };
}

/**
 * `full`: there are as many jobs as may be. `unmet`: the guard was not met, or another job has the
 * key.
 */
export type PushJobCreation = 'created' | 'full' | 'unmet';

/**
 * Creates the job, its nodes and its duty, or nothing. Nodes whose servers are not running do not
 * take part.
 */
export async function createPushJob(database: Queryable, job: NewPushJob): Promise<PushJobCreation> {
  const { record } = job;
  const wanted = wantedColumns(job);
  const columns = Object.keys(wanted).join(', ');
  const parameters = new SqlParameters([
    JSON.stringify(wanted),
    job.organization ?? null,
    job.file ?? null,
    job.nodes.map(({ serverUuid }) => serverUuid),
    job.nodes.map(({ name }) => name),
    job.nodes.map(({ isDenied = false }) => isDenied),
    PUSH_DUTY,
  ]);
  const { text, values } = combineStatement(
    `with guard as materialized (
       select has_room, case when has_room then ${job.guard?.condition(parameters) ?? 'true'} else false end as is_met
         from (select ${HAS_ROOM} as has_room) as room
     ), made as (
       insert into cnapi_push_jobs (${columns}, bytes, file, has_file, node_count, state)
         select ${columns}, octet_length(command) + octet_length(coalesce(masked_options, options)::text), $3::bytea,
             $3::bytea is not null, cardinality($4::uuid[]), case when ticket is null then 'voting' else 'waiting' end
           from guard, json_populate_record(null::cnapi_push_jobs, $1::json) where is_met
         on conflict (coalesce(actor, ''), idempotency_key) where idempotency_key is not null do nothing
         returning id, actor, ticket
     ), nodes as (
       insert into cnapi_push_nodes (job, server_uuid, name, state, reason)
         select made.id, n.server_uuid, n.name,
             coalesce(cnapi_next_push_node('new', e.event, false), 'new'), e.event
           from unnest($4::uuid[], $5::text[], $6::boolean[]) as n (server_uuid, name, denied)
           join cnapi_presence($4::uuid[]) as p on p.server_uuid = n.server_uuid
           cross join made
           cross join lateral (
             select case when n.denied then 'permission-denied'
               when p.run is null and made.ticket is null then 'down' end as event
           ) as e
           order by n.server_uuid
     ), tickets as (
       insert into cnapi_push_tickets (job, server_uuid, scope, id, expires_in, timeout_ms, actor)
         select made.id, t.server_uuid, t.scope, t.id, t.expires_in, t.timeout_ms, made.actor
           from made, jsonb_to_record(made.ticket)
             as t (server_uuid text, scope text, id text, expires_in int, timeout_ms int)
           where made.ticket is not null
     )
     select guard.has_room, duty.id is not null as is_made
       from guard left join (select cnapi_create_duties(array[made.id], $7::text) as id from made) as duty on true`,
    parameters,
    record && ((all) => record(all, all.add(newJobDetails(job), 'jsonb'), '$4::uuid[]')),
  );
  const name = statementName(`create push job${job.guard === undefined ? '' : ` if ${job.guard.name}`}`, record);
  const { rows } = await database
    .query<{ has_room: boolean; is_made: boolean }>(text, values, { name })
    .catch((error: unknown) => {
      // The guard noted this job, and another one with the same key was committed meanwhile.
      if (job.guard !== undefined && sqlStateOf(error) === FOREIGN_KEY_VIOLATION) return { rows: [] };
      throw error;
    });
  const [{ has_room: hasRoom, is_made: isMade } = { has_room: true, is_made: false }] = rows;
  if (isMade) return 'created';
  return hasRoom ? 'unmet' : 'full';
}

/** The job that this caller created under this key. */
export async function readPushJobByKey(
  database: Queryable,
  { key, actor }: RequestKey,
): Promise<{ id: string; hash: string } | undefined> {
  const { rows } = await database.query<{ id: string; hash: string }>(
    `select id, request_hash as hash from cnapi_push_jobs
       where coalesce(actor, '') = $2::text and idempotency_key = $1::text`,
    [key, actor ?? ''],
    { name: 'read push job by key' },
  );
  return rows[0];
}

/** The ticket as callers see it; it has a `uuid` once it exists. */
type ShownTicket = NonNullable<PushJob['ticket']>;

const toShown = ({ serverUuid, scope, id, expiresInSeconds, timeoutMs }: WantedTicket): ShownTicket => ({
  server_uuid: serverUuid,
  scope,
  id,
  expires_in: expiresInSeconds,
  timeout_ms: timeoutMs,
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
  state: PushJobState;
  outcome: PushJobOutcome | null;
  reason: string | null;
  /** The abort that a caller has requested. */
  abort_requested: 'soft' | 'hard' | null;
  /** Who first asked for its abort. */
  abort_actor: string | null;
  created_at: Date;
  state_since: Date;
  /** Number of nodes by state. */
  counts: Partial<Record<NodeStatus, number>>;
  /**
   * The instance that carries it out at present; null: none does, or it has ended. Not in lists,
   * which would look up the duty of each job.
   */
  coordinator?: string | null;
  /** Only in lists: where the job is. */
  cursor: Cursor;
}

const columns = `j.id, j.organization, j.command, coalesce(j.masked_options, j.options) as options, j.has_file,
  j.actor, j.node_count, j.quorum, j.concurrency, j.start_rate, j.max_failures, j.voting_timeout_ms, j.run_timeout_ms, j.node_timeout_ms, j.ticket, j.state, j.outcome,
  j.reason, j.abort_requested, j.abort_actor, j.created_at, j.state_since, ${NODE_COUNTS} as counts, ${CURSOR} as cursor`;

export async function readPushJob(database: Queryable, id: string): Promise<PushJobRow | undefined> {
  const { rows } = await database.query<PushJobRow>(
    `select ${columns}, case when j.state <> 'ended' then cnapi_duty_holder(j.id) end as coordinator
       from cnapi_push_jobs j where j.id = $1::uuid`,
    [id],
  );
  return rows[0];
}

export interface PushJobFilter {
  status?: ReturnType<typeof toJobStatus> | undefined;
  /** Only jobs whose ids begin like this. */
  idPrefix?: string | undefined;
  /** The schedule that started it, which may have been deleted since. */
  schedule?: string | undefined;
  /** Where the page before ended. */
  after?: Cursor | undefined;
  limit: number;
}

const PAGE_BOUNDS = { bytes: 1024 * 1024, nodes: 50_000 };

/** The newest first. A page may have fewer than `limit` jobs and still not be the last. */
export function listPushJobs(
  database: Queryable,
  { status, idPrefix, schedule, after, limit }: PushJobFilter,
  bounds = PAGE_BOUNDS,
): Promise<PushJobPage<PushJobRow>> {
  const ids = idPrefix === undefined ? undefined : idRangeOf(idPrefix);
  const where = `($1::text is null or coalesce(j.outcome, j.state) = $1::text)
         and ($2::uuid is null or j.id between $2::uuid and $3::uuid)
         and ($4::uuid is null
           or j.id = any (array(select f.job from cnapi_push_firings f where f.schedule = $4::uuid)))`;
  const values = [status ?? null, ids?.first ?? null, ids?.last ?? null, schedule ?? null];
  return readJobPage(database, { columns, where, values }, { after, limit, ...bounds });
}

export interface PushNodeRow {
  server_uuid: string;
  name: string;
  state: NodeStatus;
  reason: NodeReason | null;
  message: string | null;
  busy_with: string | null;
  task: string | null;
  exit_code: number | null;
  /** The end of its task was requested. */
  is_cancelled: boolean;
  updated_at: Date;
}

export const nodeColumns =
  'server_uuid, name, state, reason, message, busy_with, task, exit_code, is_cancelled, updated_at';

const MAX_NODES = 1_000;

export interface NodePage {
  state?: NodeStatus | undefined;
  /** The uuid of the last server of the page before. */
  after?: string | undefined;
  limit?: number | undefined;
}

/** Returns the nodes in order of the servers' uuids. */
export async function listPushNodes(
  database: Queryable,
  jobId: string,
  { state, after, limit = MAX_NODES }: NodePage,
): Promise<PushNodeRow[]> {
  const { rows } = await database.query<PushNodeRow>(
    `select ${nodeColumns} from cnapi_push_nodes
       where job = $1::uuid and ($2::text is null or state = $2::text) and ($3::uuid is null or server_uuid > $3::uuid)
       order by server_uuid limit $4::int`,
    [jobId, state ?? null, after ?? null, limit],
  );
  return rows;
}

export interface AbortRequest {
  /** `soft`: commands that run may end. */
  how: 'soft' | 'hard';
  actor: string | undefined;
  record?: AuditRecordPart | undefined;
}

/** False if the job has ended or does not exist. */
export async function requestAbort(
  database: Queryable,
  jobId: string,
  { how, actor, record }: AbortRequest,
): Promise<boolean> {
  const parameters = new SqlParameters([jobId, how, actor ?? null]);
  const { text, values } = combineStatement(
    `update cnapi_push_jobs j
       set abort_requested = case when abort_requested = 'hard' then 'hard' else $2::text end,
         abort_actor = coalesce(abort_actor, $3::text)
       where id = $1::uuid and state <> 'ended'`,
    parameters,
    record && ((all) => record(all, all.add(JSON.stringify({ how }), 'jsonb'))),
  );
  const name = statementName('request abort of push job', record);
  const { rowCount } = await database.query(text, values, { name });
  return rowCount > 0;
}

/**
 * Deletes a job that has ended, and its nodes. The output of its commands stays with their tasks.
 */
export async function deletePushJob(database: Queryable, id: string, record?: AuditRecordPart): Promise<boolean> {
  const ended = `j.id = $1::uuid and (j.state || '') = 'ended'`;
  const details = `(select ${END_DETAILS} from cnapi_push_jobs j where ${ended})`;
  const { text, values } = combineStatement(
    `delete from cnapi_push_jobs j where ${ended}`,
    new SqlParameters([id]),
    record && ((parameters) => record(parameters, details)),
  );
  const { rowCount } = await database.query(text, values);
  return rowCount > 0;
}

/** The state of a server in push jobs, in the words of the specification. */
type NodeAvailability = 'idle' | 'in-job' | 'rehab' | 'down';

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
