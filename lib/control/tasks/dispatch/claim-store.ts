/**
 * SQL of the dispatches and the reconciler: claim, send again, inventory. The roster's row fences
 * each statement (docs/design/tasks.md).
 */
import type { Queryable } from '../../../platform/postgres/database.ts';
import type { JsonObject } from '../../../protocol/json/bounded-json.ts';
import { type ClaimingSession, toWritten, type WrittenRow, type WrittenTasks } from '../store/change-result.ts';
import type { InheritedTask, InventoryDecision } from '../store/task.ts';
import { MAX_CLAIMED_PER_SERVER, MAX_HELD_BYTES, MAX_UNACCEPTED_BYTES } from '../store/task-limits.ts';

/** An attempt that this run claimed; `readDispatches` reads the task. */
export interface ClaimedAttempt {
  id: string;
  serverUuid: string;
  attempt: number;
  epoch: number;
  paramsBytes: number;
}

/** A task to send to its server's agent. */
export interface TaskToSend {
  id: string;
  serverUuid: string;
  attempt: number;
  epoch: number;
  name: string;
  params: JsonObject;
  timeoutMs: number;
  requestId: string | null;
}

export interface ClaimResult {
  claimed: ClaimedAttempt[];
  /** Attempts for which a cancel must be sent to their agents. */
  cancels: ClaimedAttempt[];
  /** Servers with queued tasks that must accept or end some tasks first. */
  saturated: string[];
  /** Servers to claim for again after a short pause: a limit was reached, or a row was locked. */
  retrySoon: string[];
}

/** What one statement reads, at most, unless a single task has more. */
export const MAX_READ_TASKS = 500;
export const MAX_READ_BYTES = 4 * 1024 * 1024;
/** Maximum of tasks, and of cancels, that one statement gives one server. */
const MAX_PER_SERVER = 100;
/**
 * How many tasks one statement claims, over all servers. It holds the rows of these servers until
 * it commits: with 5,000 tasks for 0.6 s, in which no agent of theirs was accepted.
 */
const MAX_CLAIMS = 2_000;
/** How many bytes of params one statement claims, over all servers. */
const MAX_BYTES = 32 * 1024 * 1024;
const MAX_RESENT_AT_ONCE = 500;
const MAX_CANCELS_AT_ONCE = 5_000;
/**
 * Servers of this run that have an unfinished task. The other servers have nothing to claim, send
 * again or cancel.
 */
export async function readBusyServers(database: Queryable, run: string): Promise<string[]> {
  const { rows } = await database.query<{ server_uuid: string }>(
    `select busy.server_uuid
       from (
         select server_uuid from cnapi_tasks where state = 'queued'
         union select server_uuid from cnapi_tasks where state = 'claimed'
       ) as busy
         cross join lateral (
           select 1 from cnapi_roster_authority a where a.server_uuid = busy.server_uuid and a.run = $1::uuid offset 0
         ) as mine`,
    [run],
  );
  return rows.map((row) => row.server_uuid);
}

/** Claims the tasks queued for these sessions, and returns the requested cancels to send. */
export async function claimTasks(
  database: Queryable,
  run: string,
  { sessions, resendMs }: { sessions: readonly ClaimingSession[]; resendMs: number },
): Promise<ClaimResult> {
  const { rows } = await database.query<ClaimedAttempt & { what: 'send' | 'cancel' | 'full' | 'again' }>(
    `select what, id, server_uuid as "serverUuid", attempt, epoch, params_bytes as "paramsBytes"
       from cnapi_claim_for_sessions($1::uuid, $2::uuid[], $3::bigint[], $4::uuid[], $5::int, $6::int, $7::int,
         $8::int, $9::int, $10::int, $11::int, $12::int)`,
    [
      run,
      sessions.map((session) => session.serverUuid),
      sessions.map((session) => session.epoch),
      sessions.map((session) => session.journalId),
      resendMs,
      MAX_CLAIMED_PER_SERVER,
      MAX_PER_SERVER,
      MAX_UNACCEPTED_BYTES,
      MAX_HELD_BYTES,
      MAX_CLAIMS,
      MAX_BYTES,
      MAX_CANCELS_AT_ONCE,
    ],
    { name: 'claim for sessions' },
  );
  const claim: ClaimResult = { claimed: [], cancels: [], saturated: [], retrySoon: [] };
  for (const { what, ...row } of rows) {
    if (what === 'send') claim.claimed.push(row);
    else if (what === 'cancel') claim.cancels.push(row);
    else if (what === 'full') claim.saturated.push(row.serverUuid);
    else claim.retrySoon.push(row.serverUuid);
  }
  return claim;
}

/**
 * The tasks of these attempts, in the same order; leaves out attempts that are no longer claimed.
 * Locks nothing, because params may be wide. Callers bound what one call reads.
 */
export async function readDispatches(database: Queryable, given: readonly ClaimedAttempt[]): Promise<TaskToSend[]> {
  const { rows } = await database.query<TaskToSend>(
    `select t.id, t.server_uuid as "serverUuid", t.attempt, t.epoch, t.name, t.params, t.timeout_ms as "timeoutMs",
         t.req_id as "requestId"
       from unnest($1::uuid[], $2::int[]) with ordinality as given (id, attempt, place)
         join cnapi_tasks t on t.id = given.id and t.attempt = given.attempt and (t.state || '') = 'claimed'
       order by given.place`,
    [given.map(({ id }) => id), given.map(({ attempt }) => attempt)],
    { name: 'read orders' },
  );
  return rows;
}

/**
 * Returns attempts of these sessions that were not accepted within `afterMs` of when they were last
 * sent, the longest ago first. Returns a bounded number for each server, so an agent that accepts
 * nothing does not delay the others. Call it again until it returns none.
 */
export async function resendTasks(
  database: Queryable,
  sessions: readonly ClaimingSession[],
  afterMs: number,
): Promise<ClaimedAttempt[]> {
  const { rows } = await database.query<ClaimedAttempt>(
    `update cnapi_tasks t set sent_at = cnapi_now()
       where (t.state || '') = 'claimed' and t.accepted_at is null and t.id = any (array(
         select q.id from cnapi_tasks q
           where (q.state || '') = 'claimed' and q.accepted_at is null and q.id = any (array(
             select due.id from (
               select d.id, d.sent_at, sum(d.params_bytes) over (order by d.sent_at, d.id) - d.params_bytes as bytes_before
                 from unnest($1::uuid[], $2::bigint[]) as mine (server_uuid, epoch)
                 cross join lateral (
                   select * from cnapi_tasks d
                     where d.server_uuid = mine.server_uuid and d.epoch = mine.epoch and d.state = 'claimed'
                       and d.accepted_at is null
                       and (d.sent_at < cnapi_now() - $3::int * interval '1 ms' or d.sent_at > cnapi_now())
                     order by d.sent_at, d.id limit $4::int
                 ) as d
             ) as due
             where due.bytes_before < $6::int order by due.sent_at, due.id limit $5::int))
           for update skip locked))
       returning t.id, t.server_uuid as "serverUuid", t.attempt, t.epoch, t.params_bytes as "paramsBytes"`,
    [
      sessions.map((session) => session.serverUuid),
      sessions.map((session) => session.epoch),
      afterMs,
      MAX_PER_SERVER,
      MAX_RESENT_AT_ONCE,
      MAX_BYTES,
    ],
  );
  return rows;
}

export interface InheritedRow extends InheritedTask {
  serverUuid: string;
}

/**
 * Returns at most `limit` claimed tasks of these servers that were sent to an earlier session.
 * Excludes posted tasks, which belong to the run that posted them.
 */
export async function readInheritedTasks(
  database: Queryable,
  sessions: readonly ClaimingSession[],
  limit: number,
): Promise<InheritedRow[]> {
  const { rows } = await database.query<InheritedRow>(
    `select t.id, t.server_uuid as "serverUuid", t.attempt, t.journal_id as "journalId", t.idempotent, t.uncertain,
         t.accepted_at is not null as "wasAccepted", t.started_at is not null as "hasStarted",
         t.cancel_requested_at is not null as "cancelRequested"
       from unnest($1::uuid[], $2::bigint[]) as mine (server_uuid, epoch)
         cross join lateral (
           select * from cnapi_tasks t
             where t.server_uuid = mine.server_uuid and t.state = 'claimed' and t.epoch < mine.epoch and t.posted_by is null
             offset 0) as t
       limit $3::int`,
    [sessions.map((session) => session.serverUuid), sessions.map((session) => session.epoch), limit],
  );
  return rows;
}

/**
 * Which of these servers have tasks that an agent was given. Ignores posted tasks, which belong to
 * the run that posted them.
 */
export async function readServersAtWork(database: Queryable, serverUuids: readonly string[]): Promise<string[]> {
  const { rows } = await database.query<{ server_uuid: string }>(
    `select mine.server_uuid from unnest($1::uuid[]) as mine (server_uuid)
       where exists (select 1 from cnapi_tasks t
         where t.server_uuid = mine.server_uuid and t.state = 'claimed' and t.posted_by is null offset 0)`,
    [serverUuids],
  );
  return rows.map((row) => row.server_uuid);
}

export interface InventorySettlement {
  task: InheritedRow;
  session: ClaimingSession;
  decision: InventoryDecision;
}

/**
 * Applies each decision if the task is unchanged since it was read. `locked`: tasks whose own row,
 * or whose server's roster row, was locked.
 */
export async function settleInventory(
  database: Queryable,
  run: string,
  settlements: readonly InventorySettlement[],
): Promise<WrittenTasks> {
  const { rows } = await database.query<WrittenRow>(
    `select * from cnapi_settle_inventories($1::uuid, $2::uuid[], $3::uuid[], $4::bigint[], $5::uuid[], $6::int[],
       $7::boolean[], $8::text[], $9::text[])`,
    [
      run,
      settlements.map(({ task }) => task.id),
      settlements.map(({ task }) => task.serverUuid),
      settlements.map(({ session }) => session.epoch),
      settlements.map(({ session }) => session.journalId),
      settlements.map(({ task }) => task.attempt),
      settlements.map(({ task }) => task.cancelRequested),
      settlements.map(({ decision }) => actionOf(decision)),
      settlements.map(({ decision }) => (decision.kind === 'fail' ? JSON.stringify(decision.error) : null)),
    ],
  );
  return toWritten(rows);
}

function actionOf(decision: InventoryDecision): string {
  switch (decision.kind) {
    case 'goes-on':
      return decision.started ? 'runs' : 'waits';
    case 'next-attempt':
      return decision.uncertain ? 'again-uncertain' : 'again';
    case 'fail':
      return 'fail';
    default:
      return decision satisfies never;
  }
}

/** How the record of a task that an agent works on, or holds, stands to the agent's session. */
export type RecordedState =
  | 'ended'
  /** The decision about it has not been written yet. */
  | 'unsettled'
  | 'open';

/** A task that the agent of this server works on, or holds, in a session of this epoch. */
interface TaskAtAgent {
  serverUuid: string;
  id: string;
  epoch: number;
}

/**
 * Returns the tasks that are recorded for their server. The ids come from agents, so an agent may
 * name a task of another server.
 */
export async function readRecordedStates(
  database: Queryable,
  tasks: readonly TaskAtAgent[],
): Promise<{ serverUuid: string; id: string; recorded: RecordedState }[]> {
  const { rows } = await database.query<{ serverUuid: string; id: string; recorded: RecordedState }>(
    `select t.server_uuid as "serverUuid", t.id, case when t.state = 'ended' then 'ended'
           when t.state = 'claimed' and t.epoch < given.epoch and t.posted_by is null then 'unsettled'
           else 'open' end as recorded
       from unnest($1::uuid[], $2::uuid[], $3::bigint[]) as given (id, server_uuid, epoch)
         join cnapi_tasks t on t.id = given.id and t.server_uuid = given.server_uuid`,
    [tasks.map(({ id }) => id), tasks.map(({ serverUuid }) => serverUuid), tasks.map(({ epoch }) => epoch)],
  );
  return rows;
}
