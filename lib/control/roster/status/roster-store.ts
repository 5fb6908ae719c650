/**
 * The statements over cnapi_roster_authority. The guard of each stands on the row that it writes
 * (law 5). Those over many rows lock them in key order or skip locked rows. Zero rows is an answer:
 * another writer has the row.
 */
import type { Queryable } from '../../../platform/postgres/database.ts';
import { MAX_EPOCH_LEAD } from '../../../protocol/limits.ts';
import type { HelloFrame } from '../../../protocol/link/frames.ts';
import {
  type HeldRow,
  type LossReason,
  RETURN_BURST,
  RETURN_EVERY_MS,
  type RosterRow,
  type StatusReason,
} from './authority-row.ts';

/** The run that writes, and the instance whose run it is. */
export interface RunIdentity {
  cnapiUuid: string;
  run: string;
}

export interface AcceptedSession {
  epoch: number;
  /** The run that had authority just before, for a hint on the bus; null when no run had it. */
  previousRun: string | null;
  /** The incarnation that it replaces had itself replaced it: two machines share a uuid. */
  isAlternating: boolean;
}

/**
 * The returns of a server are rate-limited: one per RETURN_EVERY_MS, burst RETURN_BURST.
 * `returns_quota_full_at` is the time at which the quota is full again. While that is more than
 * RETURN_CREDIT in the future, an agent waits, RETURN_EVERY at most. If the wait is longer, the
 * database's clock was set back, and no agent waits.
 */
const RETURN_EVERY = `interval '${RETURN_EVERY_MS} ms'`;
const RETURN_CREDIT = `interval '${(RETURN_BURST - 1) * RETURN_EVERY_MS} ms'`;
const RETURN_WAIT = `row.returns_quota_full_at - cnapi_now() - ${RETURN_CREDIT}`;

type HelloFields = Pick<HelloFrame, 'serverUuid' | 'incarnation' | 'conn' | 'journalId' | 'epoch'>;

/**
 * Gives `writer` the authority, under a new epoch, for each server whose row allows it; returns
 * those servers. Each server occurs once among the hellos. Guard, per row:
 * - the same incarnation needs a higher conn;
 * - another incarnation is accepted only if the row's is not connected, or is `replaces`, which a
 *   probe found dead;
 * - a journal must not be older than the last one that gave its inventory, unless it is new:
 *   another id and epoch 0;
 * - a return from `unknown` keeps to the rate of RETURN_BURST and RETURN_EVERY_MS.
 */
export async function acceptSessions(
  database: Queryable,
  writer: RunIdentity,
  hellos: readonly HelloFields[],
  replaces: string | null = null,
): Promise<Map<string, AcceptedSession>> {
  // `excluded.epoch` is one above the agent's.
  const { rows } = await database.query<AcceptedRow>(
    `with hello as (
       select * from unnest($1::uuid[], $2::bigint[], $3::uuid[], $4::bigint[], $5::uuid[])
         as hello (server_uuid, epoch, incarnation, conn, journal_id)
     ), before as (
       select server_uuid, run, replaced from cnapi_roster_authority where server_uuid = any ($1::uuid[])
     ), accepted as (
       insert into cnapi_roster_authority as row
         (server_uuid, cnapi_uuid, run, epoch, status, reason, since, decided_by, incarnation, conn, journal_id)
       select hello.server_uuid, $6::uuid, $7::uuid, hello.epoch + 1, 'running', 'connected', cnapi_now(), $6::uuid,
         hello.incarnation, hello.conn, hello.journal_id
       from hello left join before using (server_uuid)
       where hello.epoch <= $9::bigint or before.server_uuid is not null
       order by hello.server_uuid
       on conflict (server_uuid) do update set
         cnapi_uuid = excluded.cnapi_uuid,
         run = excluded.run,
         epoch = greatest(row.epoch + 1, excluded.epoch),
         status = 'running',
         reason = 'connected',
         since = case when row.status = 'running' then row.since else cnapi_now() end,
         decided_by = excluded.decided_by,
         replaced = case when row.incarnation = excluded.incarnation then row.replaced
           when row.status = 'running' and row.run is not null then row.incarnation end,
         incarnation = excluded.incarnation,
         conn = excluded.conn,
         journal_id = excluded.journal_id,
         returns_quota_full_at = case when row.status = 'running' then row.returns_quota_full_at
           else least(greatest(row.returns_quota_full_at, cnapi_now()), cnapi_now() + ${RETURN_CREDIT}) + ${RETURN_EVERY} end
       where excluded.epoch - 1 <= row.epoch + $9::bigint
         and not (excluded.epoch - 1 < row.inventory_epoch
           and (row.journal_id is not distinct from excluded.journal_id or excluded.epoch > 1))
         and case when row.incarnation is not distinct from excluded.incarnation then row.conn < excluded.conn
           else row.incarnation is null or row.status = 'unknown' or row.run is null or row.incarnation = $8::uuid end
         and (row.status = 'running' or (${RETURN_WAIT} between interval '1 us' and ${RETURN_EVERY}) is not true)
       returning server_uuid, epoch, incarnation, replaced
     )
     select accepted.server_uuid, accepted.epoch, before.run as previous_run,
       coalesce(before.replaced = accepted.incarnation, false) and accepted.replaced is not null as is_alternating
     from accepted left join before using (server_uuid)`,
    [
      hellos.map((hello) => hello.serverUuid),
      hellos.map((hello) => hello.epoch),
      hellos.map((hello) => hello.incarnation),
      hellos.map((hello) => hello.conn),
      hellos.map((hello) => hello.journalId),
      writer.cnapiUuid,
      writer.run,
      replaces,
      MAX_EPOCH_LEAD,
    ],
    { name: 'accept sessions' },
  );
  return new Map(rows.map((row) => [row.server_uuid, toAccepted(row)]));
}

/** Like `acceptSessions`, for one server. */
export async function acceptSession(
  database: Queryable,
  writer: RunIdentity,
  hello: HelloFields,
  replaces: string | null,
): Promise<AcceptedSession | undefined> {
  return (await acceptSessions(database, writer, [hello], replaces)).get(hello.serverUuid);
}

interface AcceptedRow {
  server_uuid: string;
  epoch: number;
  previous_run: string | null;
  is_alternating: boolean;
}

function toAccepted({ epoch, previous_run, is_alternating }: AcceptedRow): AcceptedSession {
  return { epoch, previousRun: previous_run, isAlternating: is_alternating };
}

/** The result of a statement that skips locked rows. */
interface Written {
  /** The servers whose rows it changed. */
  applied: string[];
  /** Servers that it may apply to, but whose rows were locked: try them again. */
  locked: string[];
}

interface HeldWriteRow {
  server_uuid: string;
  is_applied: boolean;
}

interface HeldWrite {
  /** SQL over `row` and `session`: that the row has not changed since the session wrote it. */
  isHeld: string;
  /** SQL of what it sets. It may use `session.reason`, and the parameters from $5 on. */
  set: string;
  reasons?: readonly string[];
  more?: readonly unknown[];
  name?: string;
}

/** Writes to the rows of these sessions, where each is still held. Skips locked rows. */
async function writeHeld(
  database: Queryable,
  sessions: readonly Pick<HeldRow, 'serverUuid' | 'run' | 'epoch'>[],
  { isHeld, set, reasons = [], more = [], name }: HeldWrite,
): Promise<Written> {
  const { rows } = await database.query<HeldWriteRow>(
    `with session as (
       select * from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[]) as session (server_uuid, run, epoch, reason)
     ), standing as (
       select row.server_uuid from cnapi_roster_authority row join session using (server_uuid) where ${isHeld}
     ), locked as (
       select row.server_uuid from cnapi_roster_authority row join session using (server_uuid) where ${isHeld}
       order by row.server_uuid for update of row skip locked
     ), written as (
       update cnapi_roster_authority row set ${set}
       from session where row.server_uuid = session.server_uuid and row.server_uuid in (select server_uuid from locked)
         and ${isHeld}
       returning row.server_uuid
     )
     select server_uuid, true as is_applied from written
     union all
     (select server_uuid, false from standing except select server_uuid, false from written)`,
    [
      sessions.map((session) => session.serverUuid),
      sessions.map((session) => session.run),
      sessions.map((session) => session.epoch),
      reasons,
      ...more,
    ],
    name === undefined ? {} : { name },
  );
  const { applied = [], locked = [] } = Object.groupBy(rows, ({ is_applied }) => (is_applied ? 'applied' : 'locked'));
  return { applied: applied.map(serverOf), locked: locked.map(serverOf) };
}

const serverOf = ({ server_uuid }: HeldWriteRow): string => server_uuid;

/**
 * The agents of these sessions have journalled their epochs and sent their inventories. Records it
 * where the row still belongs to the session.
 */
export function recordInventories(database: Queryable, sessions: readonly HeldRow[]): Promise<Written> {
  return writeHeld(database, sessions, {
    isHeld: 'row.run = session.run and row.epoch = session.epoch',
    set: 'inventory_epoch = row.epoch',
    name: 'record inventories',
  });
}

export interface SessionLoss {
  serverUuid: string;
  /** The run of this instance that the session's row names. */
  run: string;
  epoch: number;
  reason: LossReason;
}

/** The sessions have ended: sets `unknown` where their run and epoch still stand. */
export function recordLosses(database: Queryable, cnapiUuid: string, losses: readonly SessionLoss[]): Promise<Written> {
  return writeHeld(database, losses, {
    isHeld: "row.run = session.run and row.epoch = session.epoch and row.status = 'running'",
    set: "status = 'unknown', reason = session.reason, since = cnapi_now(), decided_by = $5::uuid",
    reasons: losses.map((loss) => loss.reason),
    more: [cnapiUuid],
  });
}

/** The reason on an ownerless row that `writer` sets to `unknown`. */
export function reasonOfOwnerless(row: HeldRow, writer: RunIdentity): StatusReason {
  return row.run === writer.run ? 'session-lost' : 'instance-lost';
}

/**
 * The rows stayed ownerless: sets `unknown` where that run and epoch still stand. Writes the status
 * only and skips locked rows.
 */
export async function markOwnerlessUnknown(
  database: Queryable,
  writer: RunIdentity,
  due: readonly HeldRow[],
): Promise<string[]> {
  const { rows } = await database.query<{ server_uuid: string }>(
    `with ownerless as (
       select * from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[]) as ownerless (server_uuid, run, epoch, reason)
     ), locked as (
       select row.server_uuid from cnapi_roster_authority row join ownerless using (server_uuid)
       where row.run = ownerless.run and row.epoch = ownerless.epoch and row.status = 'running'
       order by row.server_uuid for update of row skip locked
     )
     update cnapi_roster_authority row
     set status = 'unknown', since = cnapi_now(), decided_by = $5::uuid, reason = ownerless.reason
     from ownerless where row.server_uuid = ownerless.server_uuid and row.server_uuid in (select server_uuid from locked)
       and row.run = ownerless.run and row.epoch = ownerless.epoch and row.status = 'running'
     returning row.server_uuid`,
    [
      due.map((row) => row.serverUuid),
      due.map((row) => row.run),
      due.map((row) => row.epoch),
      due.map((row) => reasonOfOwnerless(row, writer)),
      writer.cnapiUuid,
    ],
  );
  return rows.map((row) => row.server_uuid);
}

/**
 * A run that was declared dead continues under a new one: moves the rows of the sessions it has
 * heard from. Repeating is harmless: the answer to the first call may have been lost.
 */
export function renewRun(database: Queryable, newRun: string, sessions: readonly HeldRow[]): Promise<Written> {
  return writeHeld(database, sessions, {
    isHeld: "row.run in (session.run, $5::uuid) and row.epoch = session.epoch and row.status = 'running'",
    set: 'run = $5::uuid',
    more: [newRun],
  });
}

const ROW_COLUMNS = `server_uuid, cnapi_uuid, run, epoch, status, reason, since, incarnation, conn, journal_id, inventory_epoch,
  case when ${RETURN_WAIT} between interval '1 us' and ${RETURN_EVERY}
    then ceil(1000 * extract(epoch from ${RETURN_WAIT}))::int else 0 end as returns_in_ms`;

export async function readRow(database: Queryable, serverUuid: string): Promise<RosterRow | undefined> {
  const { rows } = await database.query<StoredRow>(
    `select ${ROW_COLUMNS} from cnapi_roster_authority row where server_uuid = $1::uuid`,
    [serverUuid],
  );
  return rows[0] && toRow(rows[0]);
}

/**
 * A row as the slow poll compares it: one of this run, or one that says `running` under a run that
 * is not live.
 */
export interface PolledRow {
  serverUuid: string;
  run: string;
  epoch: number;
  isRunning: boolean;
}

export async function pollRows(database: Queryable, run: string): Promise<PolledRow[]> {
  const { rows } = await database.query<{ server_uuid: string; run: string; epoch: number; is_running: boolean }>(
    `select server_uuid, run, epoch, status = 'running' as is_running from cnapi_roster_authority where run = $1::uuid
     union all
     select row.server_uuid, row.run, row.epoch, true from cnapi_roster_authority row
     where row.run <> $1::uuid and row.status = 'running'
       and not exists (select 1 from cnapi_instances instance where instance.run = row.run and instance.state = 'live')`,
    [run],
  );
  return rows.map((row) => ({
    serverUuid: row.server_uuid,
    run: row.run,
    epoch: row.epoch,
    isRunning: row.is_running,
  }));
}

interface StoredRow {
  server_uuid: string;
  cnapi_uuid: string | null;
  run: string | null;
  epoch: number;
  status: RosterRow['status'];
  reason: StatusReason;
  since: Date;
  incarnation: string | null;
  conn: number | null;
  journal_id: string | null;
  inventory_epoch: number;
  returns_in_ms: number;
}

function toRow(row: StoredRow): RosterRow {
  return {
    serverUuid: row.server_uuid,
    cnapiUuid: row.cnapi_uuid,
    run: row.run,
    epoch: row.epoch,
    status: row.status,
    reason: row.reason,
    since: row.since,
    incarnation: row.incarnation,
    conn: row.conn,
    journalId: row.journal_id,
    inventoryEpoch: row.inventory_epoch,
    returnsInMs: row.returns_in_ms,
  };
}
