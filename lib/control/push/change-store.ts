/** SQL of what callers change in push jobs that go on. */
import type { Queryable } from '../../platform/postgres/database.ts';
import { combineStatement, SqlParameters, statementName } from '../../platform/postgres/sql-text.ts';
import type { AuditRecordPart } from '../audit-part.ts';
import { TICK_MS } from '../tasks/deadlines/deadline-counter.ts';
import { addedNodesDetails, nodeAbortDetails } from './audit-details.ts';
import type { PushJobState } from './push-job.ts';
import type { NewNode } from './push-store.ts';

/** A quorum as callers give it: a number of nodes, or a percentage. */
type Quorum = number | { percent: number };

/** What may be changed of a job; null: no limit any more. */
export interface PushJobChanges {
  quorum?: Quorum | undefined;
  concurrency?: number | null | undefined;
  start_rate?: number | null | undefined;
  max_failures?: number | null | undefined;
  voting_timeout_ms?: number | undefined;
  run_timeout_ms?: number | undefined;
}

export interface RecordedJobChange {
  changes: PushJobChanges;
  record?: AuditRecordPart | undefined;
}

/**
 * Changes a job that votes or runs; its quorum only while it votes, and to at most its number of
 * nodes. Otherwise it changes nothing and returns false.
 */
export async function changePushJob(
  database: Queryable,
  jobId: string,
  { changes, record }: RecordedJobChange,
): Promise<boolean> {
  const { quorum, concurrency, start_rate, max_failures, voting_timeout_ms, run_timeout_ms } = changes;
  const parameters = new SqlParameters([
    jobId,
    typeof quorum === 'number' ? quorum : null,
    typeof quorum === 'object' ? quorum.percent : null,
    concurrency ?? null,
    concurrency !== undefined,
    start_rate ?? null,
    start_rate !== undefined,
    max_failures ?? null,
    max_failures !== undefined,
    voting_timeout_ms ?? null,
    run_timeout_ms ?? null,
  ]);
  const { text, values } = combineStatement(
    `update cnapi_push_jobs j
       set quorum = coalesce($2::int, cnapi_push_quorum($3::float8, j.node_count), j.quorum),
         quorum_percent = case when $2::int is null then coalesce($3::float8, j.quorum_percent) end,
         concurrency = case when $5::boolean then $4::int else j.concurrency end,
         start_rate = case when $7::boolean then $6::float8 else j.start_rate end,
         max_failures = case when $9::boolean then $8::int else j.max_failures end,
         voting_timeout_ms = coalesce($10::int, j.voting_timeout_ms),
         run_timeout_ms = coalesce($11::int, j.run_timeout_ms)
       where j.id = $1::uuid and j.abort_requested is null and coalesce($2::int, 0) <= j.node_count
         and (j.state in ('waiting', 'voting') or j.state = 'running' and coalesce($2::int, $3::float8) is null)`,
    parameters,
    record && ((all) => record(all, all.add(JSON.stringify(changes), 'jsonb'))),
  );
  const name = statementName('change push job', record);
  const { rowCount } = await database.query(text, values, { name });
  return rowCount > 0;
}

export type AdditionRefusal = 'waiting' | 'aborting' | 'ended' | 'late' | 'present' | 'full';

interface AddedNodes {
  /** Why no node was added; null if all were added. */
  refusal: AdditionRefusal | null;
  /** Some of the servers that are nodes of the job already. */
  present: string[];
}

export interface NodeAddition {
  nodes: readonly NewNode[];
  record?: AuditRecordPart | undefined;
}

/** Undefined if the job does not exist. Nodes whose servers are not running do not take part. */
export async function addPushNodes(
  database: Queryable,
  jobId: string,
  { nodes, limit, record }: NodeAddition & { limit: number },
): Promise<AddedNodes | undefined> {
  const parameters = new SqlParameters([
    jobId,
    nodes.map(({ serverUuid }) => serverUuid),
    nodes.map(({ name }) => name),
    limit,
    TICK_MS,
  ]);
  const { text, values } = combineStatement(
    `select * from cnapi_add_push_nodes($1::uuid, $2::uuid[], $3::text[], $4::int, $5::int)`,
    parameters,
    record && ((all) => record(all, all.add(addedNodesDetails(nodes), 'jsonb'), '$2::uuid[]')),
  );
  const name = statementName('add push nodes', record);
  const { rows } = await database.query<AddedNodes>(text, values, { name });
  return rows[0];
}

interface ChangeOfNodes {
  /** The state of the job before the change. */
  state: PushJobState;
  /** Some of the servers that are not nodes of the job. If there are any, nothing was changed. */
  missing: string[];
}

export interface NodeAbortRequest {
  /** The uuids of the servers whose nodes are aborted. */
  nodes: readonly string[];
  /** `soft`: commands that run may end by themselves. */
  how: 'soft' | 'hard';
  record?: AuditRecordPart | undefined;
}

/** Undefined if the job does not exist. */
export async function requestAbortOfNodes(
  database: Queryable,
  jobId: string,
  { nodes, how, record }: NodeAbortRequest,
): Promise<ChangeOfNodes | undefined> {
  const parameters = new SqlParameters([jobId, nodes, how]);
  const { text, values } = combineStatement(
    `select * from cnapi_request_abort_of_push_nodes($1::uuid, $2::uuid[], $3::text)`,
    parameters,
    record && ((all) => record(all, all.add(nodeAbortDetails(how, nodes), 'jsonb'), '$2::uuid[]')),
  );
  const name = statementName('request abort of push nodes', record);
  const { rows } = await database.query<ChangeOfNodes>(text, values, { name });
  return rows[0];
}
