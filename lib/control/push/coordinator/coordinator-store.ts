/** SQL of a job's coordinator. Each function is fenced by the duty it holds. */

import type { Queryable } from '../../../platform/postgres/database.ts';
import { NODE_STATUSES, type NodeStatus } from '../../../protocol/api/push/job-schemas.ts';
import { PUSH_TASK } from '../../../protocol/push.ts';
import { DutyLostError, type HeldDuty } from '../../duty/duty.ts';
import { fenced, fenceValues } from '../../duty/duty-fence.ts';
import { TICK_MS } from '../../tasks/deadlines/deadline-counter.ts';
import { taskEnds } from '../../tasks/store/task.ts';
import type { ServerToNotify } from '../../tasks/task-topics.ts';
import type { AbortCause, NodeCounts, PushJobOutcome, PushJobSnapshot, PushJobState } from '../push-job.ts';

interface AdvanceRow {
  state: PushJobState;
  ending: PushJobOutcome | null;
  is_soft: boolean;
  quorum: number;
  abort_requested: 'soft' | 'hard' | null;
  concurrency: number | null;
  start_rate: number | null;
  max_failures: number | null;
  voting_timeout_ms: number;
  run_timeout_ms: number;
  abort_timeout_ms: number;
  start_bucket_full_in_ms: number;
  age_ticks: string;
  state_ticks: string;
  started: number;
  to_cancel: number;
  to_abort: number;
  to_release: number;
  outdated_timeouts: number;
  more: boolean;
  in_rehab: number;
  new_events: number;
  states: NodeStatus[];
  counts: number[];
}

/** What one round found. */
export interface PushJobRound extends Omit<PushJobSnapshot, 'ticket' | 'ticketTimeoutMs'> {
  /** New events of the job's feed. */
  newEvents: number;
  /** Nodes are left to settle, or to tell of in the feed: there were too many for one round. */
  isMore: boolean;
  /** Servers that are in rehab from now on: their agents are to be told. */
  inRehab: number;
}

interface StartedNode extends ServerToNotify {
  taskId: string;
}

/** What one statement does at most, so that it ends in time on a busy database. */
export const NODES_A_STEP = 1_000;

const CANCELS = [JSON.stringify(taskEnds.cancelled), JSON.stringify(taskEnds.cancelledUncertain)];
/** The ends of tasks that cnapi itself records, without a report of an agent. */
const ENDS_OF_CNAPI = Object.values(taskEnds).map((end) => JSON.stringify(end));

/**
 * One round: nodes get the ends of their tasks, those whose agents are gone leave the job, and all
 * are counted. @throws DutyLostError
 */
export async function advanceJob(database: Queryable, duty: HeldDuty): Promise<PushJobRound> {
  const { rows } = await database.query<AdvanceRow>(
    'select * from cnapi_advance_push_job($1::uuid, $2::uuid, $3::int, $4::int, $5::json, $6::json, $7::text[])',
    [...fenceValues(duty), NODES_A_STEP, ...CANCELS, ENDS_OF_CNAPI],
    { name: 'advance push job' },
  );
  const row = rows[0];
  if (row === undefined) throw new DutyLostError(duty);
  const counts = new Map(row.states.map((state, index) => [state, row.counts[index] ?? 0]));
  const nodeCounts = Object.fromEntries(NODE_STATUSES.map((state) => [state, counts.get(state) ?? 0])) as NodeCounts;
  return {
    job: {
      state: row.state,
      ending: row.ending ?? undefined,
      isSoft: row.is_soft,
      quorum: row.quorum,
      abortRequested: row.abort_requested ?? undefined,
      concurrency: row.concurrency ?? undefined,
      startRate: row.start_rate ?? undefined,
      maxFailures: row.max_failures ?? undefined,
      votingTimeoutMs: row.voting_timeout_ms,
      runTimeoutMs: row.run_timeout_ms,
      abortTimeoutMs: row.abort_timeout_ms,
    },
    nodeCounts,
    started: row.started,
    toCancel: row.to_cancel,
    toAbort: row.to_abort,
    toRelease: row.to_release,
    outdatedTimeouts: row.outdated_timeouts,
    startBucketFullInMs: row.start_bucket_full_in_ms,
    ageMs: Number(row.age_ticks) * TICK_MS,
    stateMs: Number(row.state_ticks) * TICK_MS,
    newEvents: row.new_events,
    isMore: row.more,
    inRehab: row.in_rehab,
  };
}

/**
 * Gives ready nodes their tasks, at most one for each of `ids`, and as many as the job allows now.
 * The first call starts the job. `runMs`: for how long it has run. `refillMs`: until the token
 * bucket of the start rate is full again.
 */
export async function startNodes(
  database: Queryable,
  duty: HeldDuty,
  { ids, runMs, refillMs = 0 }: { ids: readonly string[]; runMs: number; refillMs?: number },
): Promise<StartedNode[]> {
  const { rows } = await database.query<{ server_uuid: string; task: string; run: string | null }>(
    'select * from cnapi_start_push_nodes($1::uuid, $2::uuid, $3::int, $4::uuid[], $5::text, $6::int, $7::float8)',
    [...fenceValues(duty), ids, PUSH_TASK, runMs, refillMs],
    { name: 'start push nodes' },
  );
  return rows.map((row) => ({ ...toServerToNotify(row), taskId: row.task }));
}

/** Gives at most `most` running commands the job's present time limit. */
export async function changeTimeouts(database: Queryable, duty: HeldDuty, limit: number): Promise<void> {
  const sql = 'select cnapi_change_push_timeouts($1::uuid, $2::uuid, $3::int, $4::int) as held';
  await fenced(database, duty, sql, [limit]);
}

/** `ageMs`: for how long the job has asked. Does nothing if the voting timeout is longer now. */
export async function closeVoting(database: Queryable, duty: HeldDuty, ageMs: number): Promise<void> {
  const sql = 'select cnapi_close_push_voting($1::uuid, $2::uuid, $3::int, $4::float8, $5::int) as held';
  await fenced(database, duty, sql, [ageMs, NODES_A_STEP]);
}

/** Aborts the nodes that a caller wants to be aborted; cancels at most `most` tasks. */
export async function abortNodes(database: Queryable, duty: HeldDuty, limit: number): Promise<ServerToNotify[]> {
  const { rows } = await database.query<{ server_uuid: string; run: string | null }>(
    'select * from cnapi_abort_push_nodes($1::uuid, $2::uuid, $3::int, $4::int, $5::json, $6::json)',
    [...fenceValues(duty), limit, ...CANCELS],
  );
  return rows.map(toServerToNotify);
}

interface AbortOptions {
  /**
   * The cause of the abort, how long ago the job asked, and for how long it has been in its state.
   * The statement does nothing if the cause no longer holds. Absent: the cause cannot disappear.
   */
  because?: { cause: AbortCause; ageMs: number; stateMs: number } | undefined;
  ending: PushJobOutcome;
  soft: boolean;
  reason: string;
  /** Maximum of tasks cancelled by this call. */
  limit: number;
}

/** Cancels the tasks of some nodes; a round says how many are left. */
export async function abortJob(database: Queryable, duty: HeldDuty, options: AbortOptions): Promise<ServerToNotify[]> {
  const { because, ending, soft, reason, limit } = options;
  const { rows } = await database.query<{ server_uuid: string; run: string | null }>(
    `select * from cnapi_abort_push_job($1::uuid, $2::uuid, $3::int, $4::text, $5::float8, $6::float8, $7::text,
       $8::boolean, $9::text, $10::int, $11::json, $12::json)`,
    [
      ...[...fenceValues(duty), because?.cause ?? null, because?.ageMs ?? null, because?.stateMs ?? null],
      ...[ending, soft, reason, limit, ...CANCELS],
    ],
    { name: 'abort push job' },
  );
  return rows.map(toServerToNotify);
}

/**
 * Returns how many nodes are left before the job ends: to give up, or, if it was to be complete,
 * added since they were counted. @throws DutyLostError
 */
export async function endJob(database: Queryable, duty: HeldDuty, outcome: PushJobOutcome): Promise<number> {
  const { rows } = await database.query<{ unended: number | null }>(
    'select cnapi_end_push_job($1::uuid, $2::uuid, $3::int, $4::text, $5::int, $6::json, $7::json) as unended',
    [...fenceValues(duty), outcome, NODES_A_STEP, ...CANCELS],
  );
  const unended = rows[0]?.unended ?? null;
  if (unended === null) throw new DutyLostError(duty);
  return unended;
}

/** The tasks of a job's nodes that have not ended. */
export async function readTasksOfJob(database: Queryable, jobId: string): Promise<string[]> {
  const { rows } = await database.query<{ task: string }>(
    `select task from cnapi_push_nodes where job = $1::uuid and state in ('ready', 'running') and task is not null`,
    [jobId],
  );
  return rows.map(({ task: taskId }) => taskId);
}

const toServerToNotify = ({ server_uuid: serverUuid, run }: { server_uuid: string; run: string | null }) => ({
  serverUuid,
  run,
});
