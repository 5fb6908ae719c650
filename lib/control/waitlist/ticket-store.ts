/**
 * SQL of the waitlist: calls of the operations' functions, and reads of tickets. One TypeScript
 * function per statement. Lists of tickets and of queues are in `ticket-list-store.ts`.
 */
import type { Queryable } from '../../platform/postgres/database.ts';
import {
  combineStatement,
  SqlParameters,
  type StatementPart,
  statementName,
} from '../../platform/postgres/sql-text.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import type { Expiry, TicketStatus } from './ticket.ts';

/** Names one queue. */
export interface QueueKey {
  serverUuid: string;
  scope: string;
  id: string;
}

export interface NewTicket extends QueueKey {
  uuid: string;
  action: string | undefined;
  extra: JsonObject;
  reqId: string | undefined;
  /** The name of the caller that creates it. */
  actor?: string | undefined;
  expiry: Expiry;
  /** A record of the caller, written by the same statement. */
  record?: StatementPart | undefined;
}

export interface TicketRow {
  uuid: string;
  server_uuid: string;
  scope: string;
  id: string;
  action: string | null;
  extra: JsonObject;
  reqid: string | null;
  actor: string | null;
  expires_at: Date;
  /** The expiry as the caller wrote it; null if the caller gave a duration. */
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

/**
 * The result of an operation on one ticket: its status afterwards, and all tickets that moved,
 * itself included.
 */
export interface TicketChange {
  status: TicketStatus;
  moved: MovedTicket[];
}

export interface TicketBounds {
  /** Limits the waiting tickets of one queue. */
  maxWaiting: number;
  /** Limits the active and queued tickets in all queues of a server. */
  maxOpen: number;
}

/** The limit that prevented a ticket from being added. */
export type TicketRefusal = 'queue-full' | 'server-full';

export const servedColumns = `uuid, server_uuid, scope, id, action, extra, reqid, actor, expires_at, expires_text, status,
  created_at, updated_at`;

/**
 * The statements that lock a queue take `lockMs`: how long each of them waits for a lock, if not as
 * long as the database's own limit. Then they fail with a DatabaseBusyError (`locked`), and nothing
 * was changed.
 */
export interface LockWait {
  lockMs?: number | undefined;
}

export async function addTicket(
  database: Queryable,
  ticket: NewTicket,
  { maxWaiting, maxOpen, lockMs }: TicketBounds & LockWait,
): Promise<'added' | TicketRefusal> {
  const { text, values } = combineStatement(
    `select cnapi_add_ticket(cnapi_lock_within($14::int, $1::uuid), $2::text, $3::text, $4::text, $5::text, $6::json,
       $7::text, $8::text, $9::timestamptz, $10::bigint, $11::text, $12::int, $13::int) as outcome`,
    new SqlParameters([...ticketInsertionValues(ticket), maxWaiting, maxOpen, lockMs ?? null]),
    ticket.record,
  );
  const name = statementName('add ticket', ticket.record);
  const { rows } = await database.query<{ outcome: 'added' | TicketRefusal }>(text, values, { name });
  return (rows[0] as { outcome: 'added' | TicketRefusal }).outcome;
}

/** Parameters `$1` to `$11` of a statement that creates a ticket. */
export function ticketInsertionValues(ticket: NewTicket): unknown[] {
  const { uuid, serverUuid, scope, id, action = null, extra, reqId = null, actor = null, expiry } = ticket;
  return [uuid, serverUuid, scope, id, action, JSON.stringify(extra), reqId, actor, ...expiryValues(expiry)];
}

/**
 * Returns the ticket's queue in order, up to the ticket. A ticket that no longer waits is returned
 * alone. Empty: the ticket does not exist any more.
 */
export async function readQueueUpTo(database: Queryable, uuid: string, maxListed: number): Promise<TicketRow[]> {
  const { rows } = await database.query<TicketRow>(
    `with own as (select * from cnapi_waitlist_tickets where uuid = $1::uuid)
     select ${servedColumns} from (
       select a.* from cnapi_waitlist_tickets a
         where a.queue = (select queue from own where status = 'queued') and a.status = 'active'
       union all
       (select w.* from cnapi_waitlist_tickets w
         where w.queue = (select queue from own where status = 'queued') and w.status = 'queued'
           and w.place < (select place from own)
         order by w.place limit $2::int)
       union all
       select * from own
     ) as part order by place`,
    [uuid, maxListed],
    { name: 'read queue up to ticket' },
  );
  return rows;
}

/** The queue that a ticket is in, by its key; undefined when the ticket does not exist. */
export async function readQueueKey(database: Queryable, uuid: string): Promise<QueueKey | undefined> {
  const { rows } = await database.query<{ server_uuid: string; scope: string; id: string }>(
    'select server_uuid, scope, id from cnapi_waitlist_tickets where uuid = $1::uuid',
    [uuid],
    { name: 'read queue of ticket' },
  );
  const [row] = rows;
  return row && { serverUuid: row.server_uuid, scope: row.scope, id: row.id };
}

/** Returns undefined when the ticket does not exist. */
export async function releaseTicket(
  database: Queryable,
  uuid: string,
  { lockMs }: LockWait = {},
): Promise<TicketChange | undefined> {
  const { rows } = await database.query<ChangeRow>(
    'select uuid, status, moved from cnapi_release_ticket(cnapi_lock_within($2::int, $1::uuid))',
    [uuid, lockMs ?? null],
    { name: 'release ticket' },
  );
  return toChange(rows);
}

/**
 * An ended ticket does not change; a ticket whose expiry has passed ends as expired. Returns
 * undefined when the ticket does not exist.
 */
export async function renewTicket(
  database: Queryable,
  uuid: string,
  expiry: Expiry,
  { lockMs }: LockWait = {},
): Promise<TicketChange | undefined> {
  const { rows } = await database.query<ChangeRow>(
    `select uuid, status, moved
       from cnapi_renew_ticket(cnapi_lock_within($5::int, $1::uuid), $2::timestamptz, $3::bigint, $4::text)`,
    [uuid, ...expiryValues(expiry), lockMs ?? null],
    { name: 'renew ticket' },
  );
  return toChange(rows);
}

/** Returns the ticket itself first; empty when it does not exist. */
export async function deleteTicket(
  database: Queryable,
  uuid: string,
  { lockMs }: LockWait = {},
): Promise<MovedTicket[]> {
  const { rows } = await database.query<MovedTicket>(
    'select uuid, status from cnapi_delete_ticket(cnapi_lock_within($2::int, $1::uuid))',
    [uuid, lockMs ?? null],
  );
  return rows;
}

/**
 * Deletes the active and queued tickets of some of the server's queues: those not created after
 * the queue `last` (`readLastQueue`).
 */
export async function deleteQueues(
  database: Queryable,
  serverUuid: string,
  { last, maxQueues, lockMs }: { last: number; maxQueues: number } & LockWait,
): Promise<{ queues: number; moved: MovedTicket[] }> {
  const { rows } = await database.query<{ uuid: string | null }>(
    'select uuid from cnapi_delete_queues(cnapi_lock_within($4::int, $1::text), $2::bigint, $3::int) as uuid',
    [serverUuid, last, maxQueues, lockMs ?? null],
  );
  const moved = rows.flatMap(({ uuid }) => (uuid === null ? [] : [{ uuid, status: 'deleted' as const }]));
  return { queues: rows.length - moved.length, moved };
}

/**
 * Deletes some of the server's ended tickets whose queue was not created after the queue `last`.
 * Returns their number.
 */
export async function deleteEnded(
  database: Queryable,
  serverUuid: string,
  { last, maxTickets }: { last: number; maxTickets: number },
): Promise<number> {
  const { rowCount } = await database.query(
    `delete from cnapi_waitlist_tickets where uuid = any (array(
       select uuid from cnapi_waitlist_tickets
         where server_uuid = $1::text and queue <= $2::bigint and status in ('finished', 'expired')
         order by created_at limit $3::int
         for update skip locked))`,
    [serverUuid, last, maxTickets],
  );
  return rowCount;
}

/** Deletes one batch of the tickets that ended more than `days` ago. Returns their number. */
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

/** Expires at most `maxTickets` due tickets. Returns all tickets that moved. */
export async function expireTickets(database: Queryable, maxTickets: number): Promise<MovedTicket[]> {
  const { rows } = await database.query<MovedTicket>(
    'select uuid, status from cnapi_expire_tickets($1::int)',
    [maxTickets],
    { name: 'expire tickets' },
  );
  return rows;
}

/** Advances queues that have no active ticket. Returns these queues and the tickets that moved. */
export async function repairQueues(
  database: Queryable,
  maxQueues: number,
): Promise<{ queues: number[]; moved: MovedTicket[] }> {
  const { rows } = await database.query<{ queue: number } & (MovedTicket | { uuid: null; status: null })>(
    'select queue, uuid, status from cnapi_repair_queues($1::int)',
    [maxQueues],
  );
  const moved = rows.flatMap((row) => (row.uuid === null ? [] : [{ uuid: row.uuid, status: row.status }]));
  return { queues: rows.flatMap((row) => (row.uuid === null ? [row.queue] : [])), moved };
}

/** The key of the queue that was created last, on any server. */
export async function readLastQueue(database: Queryable): Promise<number> {
  const { rows } = await database.query<{ key: number }>('select last_value as key from cnapi_waitlist_queues_key_seq');
  return (rows[0] as { key: number }).key;
}

export async function readTicket(database: Queryable, uuid: string): Promise<TicketRow | undefined> {
  const { rows } = await database.query<TicketRow>(
    `select ${servedColumns} from cnapi_waitlist_tickets where uuid = $1::uuid`,
    [uuid],
    { name: 'read ticket' },
  );
  return rows[0];
}

/** Reads the status of tickets; leaves out those that do not exist. */
export async function readTicketStatuses(
  database: Queryable,
  uuids: readonly string[],
): Promise<(readonly [uuid: string, status: TicketStatus])[]> {
  const { rows } = await database.query<{ uuid: string; status: TicketStatus }>(
    'select uuid, status from cnapi_waitlist_tickets where uuid = any ($1::uuid[])',
    [uuids],
    { name: 'read ticket statuses' },
  );
  return rows.map(({ uuid, status }) => [uuid, status]);
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
