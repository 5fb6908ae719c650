/** SQL of the waitlist: the operations' functions, and what is read of tickets and queues. One function per statement. */
import type { Queryable } from '../moray/database.ts';
import type { Expiry, JsonObject, TicketStatus } from './ticket.ts';

export interface NewTicket {
  uuid: string;
  serverUuid: string;
  scope: string;
  id: string;
  action: string | undefined;
  extra: JsonObject;
  reqId: string | undefined;
  expiry: Expiry;
}

export interface TicketRow {
  uuid: string;
  server_uuid: string;
  scope: string;
  id: string;
  action: string | null;
  extra: JsonObject;
  reqid: string | null;
  expires_at: Date;
  /** The expiry as it was given, if it was not a duration. */
  expires_text: string | null;
  status: TicketStatus;
  created_at: Date;
  updated_at: Date;
}

/** A ticket whose status an operation changed, or that it deleted. */
export interface MovedTicket {
  uuid: string;
  status: TicketStatus | 'deleted';
}

/** What an operation on one ticket did: how that ticket stands, and which moved, itself included. */
export interface TicketChange {
  status: TicketStatus;
  moved: MovedTicket[];
}

export interface CreateBounds {
  maxWaiting: number;
  /** Of those that wait, in the answer. */
  maxListed: number;
}

const servedColumns = `uuid, server_uuid, scope, id, action, extra, reqid, expires_at, expires_text, status, created_at,
  updated_at`;

/**
 * The queue in order: the active ticket, the first that wait, the new one. Empty: too many wait. Those that wait are read
 * after the commit, and only if there are any: the lock of the queue lasts until a statement's rows have all been taken, and
 * whoever stops in the middle of many would hold everybody up.
 */
export async function createTicket(
  database: Queryable,
  ticket: NewTicket,
  { maxWaiting, maxListed }: CreateBounds,
): Promise<TicketRow[]> {
  const ends = await addTicket(database, ticket, maxWaiting);
  const [active, added] = ends;
  if (active === undefined || added === undefined || added.place - active.place === 1) return ends.map(toServed);
  const waiting = await readWaiting(database, added, maxListed);
  return [toServed(active), ...waiting, toServed(added)];
}

interface PlacedRow extends TicketRow {
  queue: number;
  place: number;
}

/** The active ticket, if that is another one, and the new one. Empty: too many wait. */
async function addTicket(database: Queryable, ticket: NewTicket, maxWaiting: number): Promise<PlacedRow[]> {
  const { uuid, serverUuid, scope, id, action, extra, reqId, expiry } = ticket;
  const { rows } = await database.query<PlacedRow>(
    `select ${servedColumns}, queue, place
       from cnapi_create_ticket($1::uuid, $2::text, $3::text, $4::text, $5::text, $6::json, $7::text, $8::timestamptz,
         $9::bigint, $10::text, $11::int, 0)`,
    [
      uuid,
      serverUuid,
      scope,
      id,
      action ?? null,
      JSON.stringify(extra),
      reqId ?? null,
      ...expiryValues(expiry),
      maxWaiting,
    ],
    { name: 'add ticket' },
  );
  return rows;
}

/** The first that wait before this place. */
async function readWaiting(database: Queryable, { queue, place }: PlacedRow, maxListed: number): Promise<TicketRow[]> {
  const { rows } = await database.query<TicketRow>(
    `select ${servedColumns} from cnapi_waitlist_tickets
       where queue = $1::bigint and status = 'queued' and place < $2::bigint
       order by place limit $3::int`,
    [queue, place, maxListed],
    { name: 'read waiting tickets' },
  );
  return rows;
}

function toServed({ queue: _queue, place: _place, ...served }: PlacedRow): TicketRow {
  return served;
}

/** Undefined: there is no such ticket. */
export async function releaseTicket(database: Queryable, uuid: string): Promise<TicketChange | undefined> {
  const { rows } = await database.query<ChangeRow>(
    'select uuid, status, moved from cnapi_release_ticket($1::uuid)',
    [uuid],
    { name: 'release ticket' },
  );
  return toChange(rows);
}

/** An ended ticket stays as it is; one whose time is up has ended then. Undefined: there is no such ticket. */
export async function renewTicket(
  database: Queryable,
  uuid: string,
  expiry: Expiry,
): Promise<TicketChange | undefined> {
  const { rows } = await database.query<ChangeRow>(
    'select uuid, status, moved from cnapi_renew_ticket($1::uuid, $2::timestamptz, $3::bigint, $4::text)',
    [uuid, ...expiryValues(expiry)],
    { name: 'renew ticket' },
  );
  return toChange(rows);
}

/** The ticket itself first. Empty: there is no such ticket. */
export async function deleteTicket(database: Queryable, uuid: string): Promise<MovedTicket[]> {
  const { rows } = await database.query<MovedTicket>('select uuid, status from cnapi_delete_ticket($1::uuid)', [uuid]);
  return rows;
}

/** Deletes what is active or queued in some queues of the server that are not younger than `before` (text of the database's). */
export async function deleteQueues(
  database: Queryable,
  serverUuid: string,
  { before, maxQueues }: { before: string; maxQueues: number },
): Promise<{ queues: number; moved: MovedTicket[] }> {
  const { rows } = await database.query<{ uuid: string | null }>(
    'select uuid from cnapi_delete_queues($1::text, $2::timestamptz, $3::int) as uuid',
    [serverUuid, before, maxQueues],
  );
  const moved = rows.flatMap(({ uuid }) => (uuid === null ? [] : [{ uuid, status: 'deleted' as const }]));
  return { queues: rows.length - moved.length, moved };
}

/** Deletes some of the server's ended tickets that are not younger than `before`; returns how many. */
export async function deleteEnded(
  database: Queryable,
  serverUuid: string,
  { before, maxTickets }: { before: string; maxTickets: number },
): Promise<number> {
  const { rowCount } = await database.query(
    `delete from cnapi_waitlist_tickets where uuid = any (array(
       select uuid from cnapi_waitlist_tickets
         where server_uuid = $1::text and created_at <= $2::timestamptz and status in ('finished', 'expired')
         order by created_at limit $3::int
         for update skip locked))`,
    [serverUuid, before, maxTickets],
  );
  return rowCount;
}

/** Deletes one batch of the tickets that ended more than `days` ago; returns how many. */
export async function deleteOldTickets(database: Queryable, days: number, maxTickets: number): Promise<number> {
  const { rowCount } = await database.query(
    `delete from cnapi_waitlist_tickets where uuid = any (array(
       select uuid from cnapi_waitlist_tickets
         where status in ('finished', 'expired') and updated_at < cnapi_now() - $1::int * interval '1 day'
         order by updated_at limit $2::int
         for update skip locked))`,
    [days, maxTickets],
  );
  return rowCount;
}

/** Expires what is due, so many tickets at a time; returns what moved. */
export async function expireTickets(database: Queryable, maxTickets: number): Promise<MovedTicket[]> {
  const { rows } = await database.query<MovedTicket>(
    'select uuid, status from cnapi_expire_tickets($1::int)',
    [maxTickets],
    { name: 'expire tickets' },
  );
  return rows;
}

/** Advances queues that have no active ticket; returns which those were, and what moved. */
export async function mendQueues(
  database: Queryable,
  maxQueues: number,
): Promise<{ queues: number[]; moved: MovedTicket[] }> {
  const { rows } = await database.query<{ queue: number } & (MovedTicket | { uuid: null; status: null })>(
    'select queue, uuid, status from cnapi_mend_queues($1::int)',
    [maxQueues],
  );
  const moved = rows.flatMap((row) => (row.uuid === null ? [] : [{ uuid: row.uuid, status: row.status }]));
  return { queues: rows.flatMap((row) => (row.uuid === null ? [row.queue] : [])), moved };
}

/** The database's time, exactly. */
export async function readNow(database: Queryable): Promise<string> {
  const { rows } = await database.query<{ now: string }>('select cnapi_now()::text as now');
  return rows[0]?.now ?? '';
}

export async function readTicket(database: Queryable, uuid: string): Promise<TicketRow | undefined> {
  const { rows } = await database.query<TicketRow>(
    `select ${servedColumns} from cnapi_waitlist_tickets where uuid = $1::uuid`,
    [uuid],
    { name: 'read ticket' },
  );
  return rows[0];
}

/** How tickets stand; those that do not exist are left out. */
export async function readStandings(
  database: Queryable,
  uuids: readonly string[],
): Promise<(readonly [uuid: string, status: TicketStatus])[]> {
  const { rows } = await database.query<{ uuid: string; status: TicketStatus }>(
    'select uuid, status from cnapi_waitlist_tickets where uuid = any ($1::uuid[])',
    [uuids],
    { name: 'read ticket standings' },
  );
  return rows.map(({ uuid, status }) => [uuid, status]);
}

/** Of every status, in the order of their creation. */
export async function listTickets(
  database: Queryable,
  serverUuid: string,
  { limit, offset }: { limit: number; offset: number },
): Promise<TicketRow[]> {
  const { rows } = await database.query<TicketRow>(
    `select ${servedColumns} from cnapi_waitlist_tickets where server_uuid = $1::text
       order by created_at, place, uuid limit $2::int offset $3::bigint`,
    [serverUuid, limit, offset],
  );
  return rows;
}

/** Which of a server's tickets; what is absent is any. */
export interface OpenTicketFilter {
  scope?: string | undefined;
  id?: string | undefined;
  reqId?: string | undefined;
}

/**
 * Those that are active or queued, in the order of their creation. By the rows of their queues: what has ended, which is a
 * hundred times as much in a busy place, is not looked at.
 */
export async function listOpenTickets(
  database: Queryable,
  serverUuid: string,
  { scope, id, reqId, limit, offset }: OpenTicketFilter & { limit: number; offset: number },
): Promise<TicketRow[]> {
  const { rows } = await database.query<TicketRow>(
    `select ${servedColumns}
       from (
         select key from cnapi_waitlist_queues
           where server_uuid = $1::text and ($2::text is null or scope = $2::text) and ($3::text is null or id = $3::text)
       ) as q
         cross join lateral (
           select * from cnapi_waitlist_tickets a where a.queue = q.key and a.status = 'active'
           union all
           select * from cnapi_waitlist_tickets w where w.queue = q.key and w.status = 'queued'
         ) as t
       where $4::text is null or t.reqid = $4::text
       order by created_at, place, uuid limit $5::int offset $6::bigint`,
    [serverUuid, scope ?? null, id ?? null, reqId ?? null, limit, offset],
  );
  return rows;
}

export interface QueueRow {
  server_uuid: string;
  scope: string;
  id: string;
  created_at: Date;
  updated_at: Date;
  waiting: number;
  oldest_waiting_ms: number | null;
  /** Null in a queue that must be mended. */
  holder: string | null;
  action: string | null;
  reqid: string | null;
  expires_at: Date | null;
  expires_text: string | null;
  active_ms: number | null;
}

/** By server, scope and id. */
export async function listQueues(
  database: Queryable,
  { limit, offset }: { limit: number; offset: number },
): Promise<QueueRow[]> {
  const { rows } = await database.query<QueueRow>(
    `select q.server_uuid, q.scope, q.id, q.created_at, q.updated_at, w.waiting,
         ${ageMs('w.first_at')} as oldest_waiting_ms,
         a.uuid as holder, a.action, a.reqid, a.expires_at, a.expires_text, ${ageMs('a.active_at')} as active_ms
       from (
         select * from cnapi_waitlist_queues order by server_uuid, scope, id limit $1::int offset $2::bigint
       ) as q
         left join cnapi_waitlist_tickets a on a.queue = q.key and a.status = 'active'
         cross join lateral (
           select count(*)::int as waiting, min(t.created_at) as first_at
             from cnapi_waitlist_tickets t where t.queue = q.key and t.status = 'queued'
         ) as w
       order by q.server_uuid, q.scope, q.id`,
    [limit, offset],
  );
  return rows;
}

interface ChangeRow {
  uuid: string;
  status: TicketStatus;
  moved: boolean;
}

function toChange(rows: readonly ChangeRow[]): TicketChange | undefined {
  const own = rows[0];
  return own && { status: own.status, moved: rows.filter(({ moved }) => moved) };
}

function expiryValues(expiry: Expiry): [at: string | null, inMs: number | null, text: string | null] {
  return 'inMs' in expiry ? [null, expiry.inMs, null] : [new Date(expiry.atMs).toISOString(), null, expiry.text];
}

const ageMs = (column: string) => `round(1000 * extract(epoch from cnapi_now() - ${column}))::bigint`;
