/** Tickets and queues as callers see them. Every reader sees all of them. Pure. */
import type { CreatedTicket, Queue, Ticket } from '../../../protocol/api/tickets.ts';
import type { QueueRow } from '../ticket-list-store.ts';
import type { TicketRow } from '../ticket-store.ts';
import type { AcceptedTicket } from '../waitlist.ts';

export function toTicket(row: TicketRow): Ticket {
  const { uuid, server_uuid, scope, id, action, extra, reqid, actor, status, created_at, updated_at } = row;
  return {
    uuid,
    server_uuid,
    scope,
    id,
    ...(action === null ? {} : { action }),
    extra,
    expires_at: expiryText(row.expires_at, row.expires_text),
    created_at: created_at.toISOString(),
    updated_at: updated_at.toISOString(),
    status,
    ...(reqid === null ? {} : { reqid }),
    ...(actor === null ? {} : { actor }),
  };
}

export function toCreatedTicket({ uuid, queue }: AcceptedTicket): CreatedTicket {
  return { uuid, queue: queue.map(toTicket) };
}

export function toQueue(row: QueueRow): Queue {
  const { server_uuid, scope, id, waiting, oldest_waiting_ms, created_at, updated_at } = row;
  return {
    server_uuid,
    scope,
    id,
    depth: waiting,
    holder: toHolder(row),
    oldest_waiting_ms,
    created_at: created_at.toISOString(),
    updated_at: updated_at.toISOString(),
  };
}

function toHolder({ holder, action, reqid, actor, expires_at, expires_text, active_ms }: QueueRow): Queue['holder'] {
  if (holder === null || expires_at === null) return null;
  return {
    uuid: holder,
    ...(action === null ? {} : { action }),
    ...(reqid === null ? {} : { reqid }),
    ...(actor === null ? {} : { actor }),
    expires_at: expiryText(expires_at, expires_text),
    active_ms: active_ms ?? 0,
  };
}

const expiryText = (at: Date, given: string | null) => given ?? at.toISOString();
