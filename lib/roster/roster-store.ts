/**
 * The statements over cnapi_roster_authority. Each one's guard stands on the row it writes (law 5), and those over many
 * rows lock them in key order or skip what is locked. Zero rows is an answer: somebody else has the row.
 */
import type { Queryable } from '../moray/database.ts';
import type { HelloFrame } from '../wire/frames.ts';
import { MAX_EPOCH_LEAD } from '../wire/limits.ts';
import type { HeldRow, LossReason, RosterRow, StatusReason } from './roster.ts';

/** The run that writes. */
export interface Writer {
  cnapiUuid: string;
  run: string;
}

export interface Accepted {
  epoch: number;
  /** The run that had authority just before, for a hint on the bus; null when nobody had. */
  previousRun: string | null;
  /** The incarnation was itself replaced by the one it now replaces: two machines share a uuid. */
  isAlternating: boolean;
}

type Greeting = Pick<HelloFrame, 'serverUuid' | 'incarnation' | 'conn' | 'journalId' | 'epoch'>;

/**
 * Authority goes to `writer` under a new epoch, for each server where nothing stands against it; returns those. A server
 * stands among the hellos once. Guard: a higher conn of the same incarnation; another incarnation only where the row's is
 * not connected, or is `replaces`, found dead by a probe; never a journal older than the last one that gave its inventory,
 * unless it is new: another one, of epoch 0.
 */
export async function acceptSessions(
  database: Queryable,
  writer: Writer,
  hellos: readonly Greeting[],
  replaces: string | null = null,
): Promise<Map<string, Accepted>> {
  // `excluded.epoch` is one above the agent's.
  const { rows } = await database.query<AcceptedRow>(
    `with hello as (
       select * from unnest($1::uuid[], $2::bigint[], $3::uuid[], $4::bigint[], $5::uuid[])
         as hello (server_uuid, epoch, incarnation, conn, journal_id)
     ), before as (
       select server_uuid, run, replaced from cnapi_roster_authority where server_uuid = any ($1::uuid[])
     ), accepted as (
       insert into cnapi_roster_authority as row
         (server_uuid, cnapi_uuid, run, epoch, status, reason, since, said_by, incarnation, conn, journal_id)
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
         said_by = excluded.said_by,
         replaced = case when row.incarnation = excluded.incarnation then row.replaced
           when row.status = 'running' and row.run is not null then row.incarnation end,
         incarnation = excluded.incarnation,
         conn = excluded.conn,
         journal_id = excluded.journal_id
       where excluded.epoch - 1 <= row.epoch + $9::bigint
         and not (excluded.epoch - 1 < row.inventory_epoch
           and (row.journal_id is not distinct from excluded.journal_id or excluded.epoch > 1))
         and case when row.incarnation is not distinct from excluded.incarnation then row.conn < excluded.conn
           else row.incarnation is null or row.status = 'unknown' or row.run is null or row.incarnation = $8::uuid end
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

/** As `acceptSessions`, of one server. */
export async function acceptSession(
  database: Queryable,
  writer: Writer,
  hello: Greeting,
  replaces: string | null,
): Promise<Accepted | undefined> {
  return (await acceptSessions(database, writer, [hello], replaces)).get(hello.serverUuid);
}

interface AcceptedRow {
  server_uuid: string;
  epoch: number;
  previous_run: string | null;
  is_alternating: boolean;
}

function toAccepted({ epoch, previous_run, is_alternating }: AcceptedRow): Accepted {
  return { epoch, previousRun: previous_run, isAlternating: is_alternating };
}

/**
 * The agents of these sessions have journalled their epochs and given their inventories; returns the servers whose row is
 * still the session's.
 */
export async function recordInventories(database: Queryable, sessions: readonly HeldRow[]): Promise<string[]> {
  const { rows } = await database.query<{ server_uuid: string }>(
    `with session as (
       select * from unnest($1::uuid[], $2::uuid[], $3::bigint[]) as session (server_uuid, run, epoch)
     ), locked as (
       select row.server_uuid from cnapi_roster_authority row join session using (server_uuid)
       where row.run = session.run and row.epoch = session.epoch
       order by row.server_uuid for update of row
     )
     update cnapi_roster_authority row set inventory_epoch = row.epoch
     from session where row.server_uuid = session.server_uuid and row.server_uuid in (select server_uuid from locked)
       and row.run = session.run and row.epoch = session.epoch
     returning row.server_uuid`,
    [
      sessions.map((session) => session.serverUuid),
      sessions.map((session) => session.run),
      sessions.map((session) => session.epoch),
    ],
    { name: 'record inventories' },
  );
  return rows.map((row) => row.server_uuid);
}

export interface Loss {
  serverUuid: string;
  /** The run of this instance that the session's row is under. */
  run: string;
  epoch: number;
  reason: LossReason;
}

/** Sessions ended: `unknown` where their run and epoch still stand. Returns the servers it applied to. */
export async function recordLosses(database: Queryable, cnapiUuid: string, losses: readonly Loss[]): Promise<string[]> {
  const { rows } = await database.query<{ server_uuid: string }>(
    `with loss as (
       select * from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[]) as loss (server_uuid, run, epoch, reason)
     ), locked as (
       select row.server_uuid from cnapi_roster_authority row join loss using (server_uuid)
       where row.run = loss.run and row.epoch = loss.epoch and row.status = 'running'
       order by row.server_uuid for update of row
     )
     update cnapi_roster_authority row
     set status = 'unknown', reason = loss.reason, since = cnapi_now(), said_by = $5::uuid
     from loss where row.server_uuid = loss.server_uuid and row.server_uuid in (select server_uuid from locked)
       and row.run = loss.run and row.epoch = loss.epoch and row.status = 'running'
     returning row.server_uuid`,
    [
      losses.map((loss) => loss.serverUuid),
      losses.map((loss) => loss.run),
      losses.map((loss) => loss.epoch),
      losses.map((loss) => loss.reason),
      cnapiUuid,
    ],
  );
  return rows.map((row) => row.server_uuid);
}

/** Rows stayed ownerless: `unknown` where that run and that epoch still stand; status only, skipping what is locked. */
export async function recordOrphans(
  database: Queryable,
  writer: Writer,
  orphans: readonly HeldRow[],
): Promise<string[]> {
  const { rows } = await database.query<{ server_uuid: string }>(
    `with orphan as (
       select * from unnest($1::uuid[], $2::uuid[], $3::bigint[]) as orphan (server_uuid, run, epoch)
     ), locked as (
       select row.server_uuid from cnapi_roster_authority row join orphan using (server_uuid)
       where row.run = orphan.run and row.epoch = orphan.epoch and row.status = 'running'
       order by row.server_uuid for update of row skip locked
     )
     update cnapi_roster_authority row
     set status = 'unknown', since = cnapi_now(), said_by = $5::uuid,
       reason = case when orphan.run = $4::uuid then 'session-lost' else 'instance-lost' end
     from orphan where row.server_uuid = orphan.server_uuid and row.server_uuid in (select server_uuid from locked)
       and row.run = orphan.run and row.epoch = orphan.epoch and row.status = 'running'
     returning row.server_uuid`,
    [
      orphans.map((orphan) => orphan.serverUuid),
      orphans.map((orphan) => orphan.run),
      orphans.map((orphan) => orphan.epoch),
      writer.run,
      writer.cnapiUuid,
    ],
  );
  return rows.map((row) => row.server_uuid);
}

/**
 * A run that found itself dead goes on under a new one: its heard sessions' rows follow. Returns those that did.
 * Again is harmless: the answer of the first may have been lost.
 */
export async function renewRun(database: Queryable, newRun: string, sessions: readonly HeldRow[]): Promise<string[]> {
  const { rows } = await database.query<{ server_uuid: string }>(
    `with session as (
       select * from unnest($1::uuid[], $2::uuid[], $3::bigint[]) as session (server_uuid, run, epoch)
     ), locked as (
       select row.server_uuid from cnapi_roster_authority row join session using (server_uuid)
       where row.run in (session.run, $4::uuid) and row.epoch = session.epoch and row.status = 'running'
       order by row.server_uuid for update of row
     )
     update cnapi_roster_authority row set run = $4::uuid
     from session where row.server_uuid = session.server_uuid and row.server_uuid in (select server_uuid from locked)
       and row.run in (session.run, $4::uuid) and row.epoch = session.epoch and row.status = 'running'
     returning row.server_uuid`,
    [
      sessions.map((session) => session.serverUuid),
      sessions.map((session) => session.run),
      sessions.map((session) => session.epoch),
      newRun,
    ],
  );
  return rows.map((row) => row.server_uuid);
}

/** The server was removed: nobody has authority, the epoch stays. Returns the run that had it; undefined without a row. */
export async function removeAuthority(
  database: Queryable,
  cnapiUuid: string,
  serverUuid: string,
): Promise<{ previousRun: string | null; epoch: number } | undefined> {
  const { rows } = await database.query<{ previous_run: string | null; epoch: number }>(
    `with before as (select run from cnapi_roster_authority where server_uuid = $1::uuid for update)
     update cnapi_roster_authority row
     set run = null, cnapi_uuid = null, status = 'unknown', reason = 'removed', said_by = $2::uuid,
       since = cnapi_now()
     from before where row.server_uuid = $1::uuid
     returning before.run as previous_run, row.epoch`,
    [serverUuid, cnapiUuid],
  );
  const row = rows[0];
  return row && { previousRun: row.previous_run, epoch: row.epoch };
}

const ROW_COLUMNS = `server_uuid, cnapi_uuid, run, epoch, status, reason, since, incarnation, conn, journal_id, inventory_epoch`;

export async function readRow(database: Queryable, serverUuid: string): Promise<RosterRow | undefined> {
  const { rows } = await database.query<StoredRow>(
    `select ${ROW_COLUMNS} from cnapi_roster_authority where server_uuid = $1::uuid`,
    [serverUuid],
  );
  return rows[0] && toRow(rows[0]);
}

/** A row as the slow poll compares it: mine, or one that says `running` under a run that is not live. */
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
  };
}
