/**
 * The waitlist's store on a test's database: shorthands for tickets, and what must hold for all of
 * them (I4).
 */
import { randomUUID } from 'node:crypto';
import type { TicketStatus } from '../../../../lib/control/waitlist/ticket.ts';
import {
  addTicket,
  type NewTicket,
  readQueueUpTo,
  type TicketBounds,
  type TicketRefusal,
  type TicketRow,
} from '../../../../lib/control/waitlist/ticket-store.ts';
import type { Queryable } from '../../../../lib/platform/postgres/database.ts';
import type { Migration } from '../../../../lib/platform/postgres/migrations.ts';
import { migrationsOf } from '../../../support/migrations-of.ts';

export const migrations: readonly Migration[] = migrationsOf('moray', 'waitlist');

/** A queue that no other test uses. */
export interface Place {
  serverUuid: string;
  scope: string;
  id: string;
}

export const newQueue = (fields: Partial<Place> = {}): Place => ({
  serverUuid: randomUUID(),
  scope: 'vm',
  id: randomUUID(),
  ...fields,
});

export const newTicket = (queue: Place, fields: Partial<NewTicket> = {}): NewTicket => ({
  ...queue,
  uuid: randomUUID(),
  action: undefined,
  extra: {},
  reqId: undefined,
  expiry: { inMs: 3_600_000 },
  ...fields,
});

export const bounds = { maxWaiting: 10_000, maxOpen: 100_000, maxListed: 1_000 };

/** Adds the ticket, and returns its queue as a caller gets it, or why it was refused. */
export async function createTicket(
  database: Queryable,
  ticket: NewTicket,
  { maxListed, ...limits }: TicketBounds & { maxListed: number },
): Promise<TicketRow[] | TicketRefusal> {
  const outcome = await addTicket(database, ticket, limits);
  return outcome === 'added' ? readQueueUpTo(database, ticket.uuid, maxListed) : outcome;
}

/** The rows of its queue, the new one last. */
export const add = async (database: Queryable, queue: Place, fields: Partial<NewTicket> = {}): Promise<TicketRow[]> =>
  rowsOf(await createTicket(database, newTicket(queue, fields), bounds));

/** @throws when the ticket was refused */
export function rowsOf(answer: TicketRow[] | TicketRefusal): TicketRow[] {
  if (typeof answer === 'string') throw new Error(`the ticket was refused: ${answer}`);
  return answer;
}

/** A ticket's uuid. */
export async function addOne(database: Queryable, queue: Place, fields: Partial<NewTicket> = {}): Promise<string> {
  const uuid = randomUUID();
  await add(database, queue, { ...fields, uuid });
  return uuid;
}

export async function addSome(database: Queryable, queue: Place, count: number): Promise<string[]> {
  const uuids: string[] = [];
  for (let n = 0; n < count; n++) uuids.push(await addOne(database, queue));
  return uuids;
}

/** Makes these tickets due. */
export async function backdate(database: Queryable, ...uuids: string[]): Promise<void> {
  await database.query(
    `update cnapi_waitlist_tickets set expires_at = cnapi_now() - interval '1 second' where uuid = any ($1::uuid[])`,
    [uuids],
  );
}

export async function statusOf(database: Queryable, uuid: string): Promise<TicketStatus | 'gone'> {
  const { rows } = await database.query<{ status: TicketStatus }>(
    'select status from cnapi_waitlist_tickets where uuid = $1::uuid',
    [uuid],
  );
  return rows[0]?.status ?? 'gone';
}

export const statusesOf = (database: Queryable, uuids: readonly string[]): Promise<(TicketStatus | 'gone')[]> =>
  Promise.all(uuids.map((uuid) => statusOf(database, uuid)));

/** The violations of I4 in the whole waitlist, a line each. */
export async function complaints(database: Queryable): Promise<string[]> {
  const { rows } = await database.query<{ complaint: string }>(complaintsSql);
  return rows.map(({ complaint }) => complaint);
}

export const complaintsSql = `
    select 'two tickets are active: ' || a.uuid || ', ' || b.uuid as complaint
      from cnapi_waitlist_tickets a
      join cnapi_waitlist_tickets b using (server_uuid, scope, id)
      where a.status = 'active' and b.status = 'active' and a.uuid < b.uuid
    union all
    select 'waits while nobody is active: ' || w.uuid
      from cnapi_waitlist_tickets w
      where w.status = 'queued' and not exists (
        select 1 from cnapi_waitlist_tickets a
          where a.status = 'active' and (a.server_uuid, a.scope, a.id) = (w.server_uuid, w.scope, w.id))
    union all
    select 'was passed over: ' || w.uuid
      from cnapi_waitlist_tickets w
      join (
        select queue, max(place) as place from cnapi_waitlist_tickets where active_at is not null group by queue
      ) as last on last.queue = w.queue
      where w.status = 'queued' and w.place < last.place
    union all
    select 'became active before one that was ahead of it: ' || s.uuid
      from (
        select uuid, active_at, max(active_at) over (partition by queue order by place) as latest
          from cnapi_waitlist_tickets where active_at is not null
      ) as s
      where s.active_at < s.latest
    union all
    select 'a queue without a ticket: ' || q.key
      from cnapi_waitlist_queues q
      where not exists (
        select 1 from cnapi_waitlist_tickets t where t.queue = q.key and t.status in ('queued', 'active'))
    union all
    select 'a ticket without a queue: ' || t.uuid
      from cnapi_waitlist_tickets t
      where t.status in ('queued', 'active') and not exists (
        select 1 from cnapi_waitlist_queues q
          where q.key = t.queue and (q.server_uuid, q.scope, q.id) = (t.server_uuid, t.scope, t.id)
            and q.last_place >= t.place)
    union all
    select 'one place twice: ' || a.uuid || ', ' || b.uuid
      from cnapi_waitlist_tickets a
      join cnapi_waitlist_tickets b on a.queue = b.queue and a.place = b.place and a.uuid < b.uuid`;
