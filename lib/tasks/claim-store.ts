/** SQL of the dispatcher: claim, send again, inventory, sweep. Fenced by the roster's row (docs/design.md section 5). */
import type { Queryable } from '../moray/database.ts';
import { type InheritedTask, type InventoryDecision, type JsonObject, taskEnds } from './task.ts';

/** A session as far as its fence goes. */
export interface ClaimingSession {
  serverUuid: string;
  epoch: number;
  journalId: string;
}

/** Something to tell a server's agent. */
export interface Order {
  what: 'send' | 'cancel';
  server_uuid: string;
  id: string;
  attempt: number;
  epoch: number;
  name: string;
  params: JsonObject;
  timeout_ms: number;
  req_id: string | null;
}

export interface Claim {
  orders: Order[];
  /** Servers with a queue that must take some of what they have first. */
  full: string[];
  /** Servers to claim for again. */
  more: string[];
  /** Servers to claim for again in a moment: the row of a task to cancel was in use. */
  later: string[];
}

/** Most tasks, and most cancels, that one statement gives one server. */
const MAX_PER_SERVER = 100;
/** Params that a server is given before it accepts some: its connection takes no more than a few times as much. */
const MAX_UNACCEPTED_BYTES = 4 * 1024 * 1024;
/** Of all servers together. */
const MAX_CLAIMS = 5_000;
const MAX_BYTES = 32 * 1024 * 1024;
const MAX_RESENT_AT_ONCE = 500;
const MAX_SWEPT_AT_ONCE = 500;
const MAX_CANCELS_AT_ONCE = 5_000;
/** Most unfinished tasks an agent is given; its journal holds more. */
const MAX_CLAIMED_PER_SERVER = 4_000;

const DATABASE_MS = '(extract(epoch from cnapi_now()) * 1000)::float8 as "databaseMs"';

/** The database's clock, in milliseconds. */
export async function readDatabaseTime(database: Queryable): Promise<{ databaseMs: number }> {
  const { rows } = await database.query<{ databaseMs: number }>(`select ${DATABASE_MS}`);
  // A select without a table gives one row.
  return rows[0] as { databaseMs: number };
}

export interface BusyServers {
  serverUuids: string[];
  /** The database's clock, in milliseconds. */
  databaseMs: number;
}

/** Servers of this run that have a task which has not ended: of all others there is nothing to claim, send again or cancel. */
export async function readBusyServers(database: Queryable, run: string): Promise<BusyServers> {
  const { rows } = await database.query<BusyServers>(
    `select ${DATABASE_MS}, array(
       select a.server_uuid::text from cnapi_roster_authority a
         where a.run = $1::uuid and a.server_uuid in (
           select server_uuid from cnapi_tasks where state = 'queued'
           union all select server_uuid from cnapi_tasks where state = 'claimed')) as "serverUuids"`,
    [run],
  );
  // As above.
  return rows[0] as BusyServers;
}

/**
 * Claims what is queued for these sessions; returns what to send, and cancels to send on: those that were asked for, and of
 * what is past its timeout by `overdueMs`; without that only the former.
 */
export async function claimTasks(
  database: Queryable,
  run: string,
  {
    sessions,
    overdueMs,
    resendMs,
  }: { sessions: readonly ClaimingSession[]; overdueMs: number | undefined; resendMs: number },
): Promise<Claim> {
  const { rows } = await database.query<Order | { what: 'full' | 'more' | 'later'; server_uuid: string }>(
    `select * from cnapi_claim_tasks($1::uuid, $2::uuid[], $3::bigint[], $4::uuid[], $5::int, $6::int, $7::int,
       $8::int, $9::int, $10::int, $11::int, $12::int)`,
    [
      run,
      sessions.map((session) => session.serverUuid),
      sessions.map((session) => session.epoch),
      sessions.map((session) => session.journalId),
      overdueMs ?? null,
      resendMs,
      MAX_CLAIMED_PER_SERVER,
      MAX_PER_SERVER,
      MAX_UNACCEPTED_BYTES,
      MAX_CLAIMS,
      MAX_BYTES,
      MAX_CANCELS_AT_ONCE,
    ],
    { name: 'claim tasks' },
  );
  const claim: Claim = { orders: [], full: [], more: [], later: [] };
  const cancels = new Map<string, number>();
  for (const row of rows) {
    if (row.what === 'send' || row.what === 'cancel') claim.orders.push(row);
    else claim[row.what].push(row.server_uuid);
    if (row.what === 'cancel') cancels.set(row.server_uuid, (cancels.get(row.server_uuid) ?? 0) + 1);
  }
  for (const [serverUuid, count] of cancels) if (count === MAX_PER_SERVER) claim.more.push(serverUuid);
  return claim;
}

/**
 * Attempts of these sessions that have not been accepted for `afterMs` since they were last sent: the longest ago first,
 * a bounded number of each server's, so that no agent that accepts nothing keeps the others waiting. Call it again until
 * there are none.
 */
export async function resendTasks(
  database: Queryable,
  sessions: readonly ClaimingSession[],
  afterMs: number,
): Promise<Order[]> {
  const { rows } = await database.query<Order>(
    `update cnapi_tasks t set sent_at = cnapi_now()
       where t.state = 'claimed' and t.accepted_at is null and t.id = any (array(
         select q.id from cnapi_tasks q
           where q.state = 'claimed' and q.accepted_at is null and q.id = any (array(
             select due.id from (
               select d.id, d.sent_at, sum(d.params_bytes) over (order by d.sent_at, d.id) - d.params_bytes as bytes_before
                 from unnest($1::uuid[], $2::bigint[]) as mine (server_uuid, epoch)
                 cross join lateral (
                   select * from cnapi_tasks d
                     where d.server_uuid = mine.server_uuid and d.epoch = mine.epoch and d.state = 'claimed'
                       and d.accepted_at is null and d.sent_at < cnapi_now() - $3::int * interval '1 ms'
                     order by d.sent_at, d.id limit $4::int
                 ) as d
             ) as due
             where due.bytes_before < $6::int order by due.sent_at, due.id limit $5::int))
           for update skip locked))
       returning 'send' as what, t.id, t.server_uuid, t.attempt, t.epoch, t.name, t.params, t.timeout_ms, t.req_id`,
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

/** Claimed tasks of these servers that an earlier session was given, `limit` of them; what was posted is its poster's. */
export async function readInherited(
  database: Queryable,
  sessions: readonly ClaimingSession[],
  limit: number,
): Promise<InheritedRow[]> {
  const { rows } = await database.query<InheritedRow>(
    `select t.id, t.server_uuid as "serverUuid", t.attempt, t.journal_id as "journalId", t.idempotent, t.uncertain,
         t.accepted_at is not null as "wasAccepted", t.cancel_requested_at is not null as "cancelRequested"
       from cnapi_tasks t
         join unnest($1::uuid[], $2::bigint[]) as mine (server_uuid, epoch) on mine.server_uuid = t.server_uuid
       where t.state = 'claimed' and t.epoch < mine.epoch and t.posted_by is null
       limit $3::int`,
    [sessions.map((session) => session.serverUuid), sessions.map((session) => session.epoch), limit],
  );
  return rows;
}

/** Those of the servers with tasks that an agent was given; what was posted is its poster's. */
export async function readServersAtWork(database: Queryable, serverUuids: readonly string[]): Promise<string[]> {
  const { rows } = await database.query<{ server_uuid: string }>(
    `select mine.server_uuid from unnest($1::uuid[]) as mine (server_uuid)
       where exists (select 1 from cnapi_tasks t
         where t.server_uuid = mine.server_uuid and t.state = 'claimed' and t.posted_by is null)`,
    [serverUuids],
  );
  return rows.map((row) => row.server_uuid);
}

export interface Settlement {
  task: InheritedRow;
  session: ClaimingSession;
  decision: InventoryDecision;
}

export interface ChangedTask {
  id: string;
  ended: boolean;
}

/** Carries the decisions out where the task is still as it was read; returns those where it was. */
export async function settleInventory(
  database: Queryable,
  run: string,
  settlements: readonly Settlement[],
): Promise<ChangedTask[]> {
  const { rows } = await database.query<ChangedTask>(
    `select * from cnapi_settle_inventory($1::uuid, $2::uuid[], $3::uuid[], $4::bigint[], $5::uuid[], $6::int[],
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
  return rows;
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

/** Which of these have ended: an agent that still works on one is to stop. */
export async function readEnded(database: Queryable, ids: readonly string[]): Promise<Set<string>> {
  const { rows } = await database.query<{ id: string }>(
    `select id from cnapi_tasks where id = any ($1::uuid[]) and state = 'ended'`,
    [ids],
  );
  return new Set(rows.map((row) => row.id));
}

/** Undefined: not yet. */
export interface SweepTimes {
  startByMs: number | undefined;
  overdueMs: number | undefined;
}

/** Ends some of what nobody takes and what nobody will report; returns the ids. Call it again until there are none. */
export async function sweepTasks(
  database: Queryable,
  { startByMs, overdueMs }: SweepTimes,
  most = MAX_SWEPT_AT_ONCE,
): Promise<string[]> {
  const { rows } = await database.query<{ id: string }>(
    `select cnapi_sweep_tasks($1::int, $2::int, $3::text, $4::text, $5::text, $6::int) as id`,
    [
      startByMs ?? null,
      overdueMs ?? null,
      JSON.stringify(taskEnds.notTaken),
      JSON.stringify(taskEnds.notTakenAgain),
      JSON.stringify(taskEnds.timedOut),
      most,
    ],
  );
  return rows.map((row) => row.id);
}
