/** SQL of lists of tickets and of queues, and of how long tickets have queued. */
import type { Queryable } from '../../platform/postgres/database.ts';
import { servedColumns, type TicketRow } from './ticket-store.ts';

/** Lists tickets of every status in order of creation. */
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

/** Selects some of a server's tickets; an absent field matches any value. */
export interface OpenTicketFilter {
  scope?: string | undefined;
  id?: string | undefined;
  reqId?: string | undefined;
}

/**
 * Lists active and queued tickets in order of creation. It starts from the rows of their queues and
 * so never reads ended tickets, of which a busy server has a hundred times as many.
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
  /** Null in a queue that needs repair. */
  holder: string | null;
  action: string | null;
  reqid: string | null;
  actor: string | null;
  expires_at: Date | null;
  expires_text: string | null;
  active_ms: number | null;
}

/** Sorted by server, scope and id. */
export async function listQueues(
  database: Queryable,
  { limit, offset }: { limit: number; offset: number },
): Promise<QueueRow[]> {
  const { rows } = await database.query<QueueRow>(
    `select q.server_uuid, q.scope, q.id, q.created_at, q.updated_at, w.waiting,
         ${ageMs('w.first_at')} as oldest_waiting_ms,
         a.uuid as holder, a.action, a.reqid, a.actor, a.expires_at, a.expires_text, ${ageMs('a.active_at')} as active_ms
       from (
         select * from cnapi_waitlist_queues order by server_uuid, scope, id limit $1::int offset $2::bigint
       ) as q
         left join lateral (
           select * from cnapi_waitlist_tickets a where a.queue = q.key and a.status = 'active' offset 0
         ) as a on true
         cross join lateral (
           select count(*)::int as waiting, min(t.created_at) as first_at
             from cnapi_waitlist_tickets t where t.queue = q.key and t.status = 'queued'
         ) as w
       order by q.server_uuid, q.scope, q.id`,
    [limit, offset],
  );
  return rows;
}

/**
 * Returns how many seconds each of these tickets queued before it became active. Leaves out tickets
 * that never became active or never queued.
 */
export async function readQueueTimes(database: Queryable, uuids: readonly string[]): Promise<number[]> {
  const { rows } = await database.query<{ seconds: number }>(
    `select extract(epoch from active_at - created_at)::float8 as seconds from cnapi_waitlist_tickets
       where uuid = any ($1::uuid[]) and active_at > created_at`,
    [uuids],
    { name: 'read queue times' },
  );
  return rows.map(({ seconds }) => seconds);
}

const ageMs = (column: string) => `round(1000 * extract(epoch from cnapi_now() - ${column}))::bigint`;
