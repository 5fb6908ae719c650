/**
 * The operations of the waitlist, as functions in the database (law 5). They are VOLATILE, so each
 * of their statements reads afresh. Each locks the queue's row first (several rows in key order),
 * reads the time once after the locks, does its work and advances the queue. Called by
 * `ticket-store.ts` only.
 *
 * A queue has a row while it has an active or queued ticket, and then one of its tickets is active.
 * An operation that waited for the lock of a deleted row finds no row, and so knows that the ticket
 * has ended. Ended tickets do not change and need no lock.
 */

/**
 * Makes the first waiting ticket that is not due active; the due tickets before it expire. The
 * caller holds the queue's lock. Deletes the row of an empty queue. Returns the tickets that moved.
 *
 * The comparison `is true` keeps the planner from the index of due tickets, which covers all
 * queues. A plain comparison would let it choose that index.
 */
export const advanceFunction = `
create or replace function cnapi_advance_queue(p_queue bigint, p_moment timestamptz)
returns table (uuid uuid, status text) language plpgsql volatile as $$
#variable_conflict use_column
declare
  head bigint;
  is_due boolean;
begin
  if exists (select 1 from cnapi_waitlist_tickets t where t.queue = p_queue and t.status = 'active') then
    return;
  end if;
  select t.place, t.expires_at <= p_moment into head, is_due
    from cnapi_waitlist_tickets t
    where t.queue = p_queue and t.status = 'queued'
    order by t.place limit 1;
  if is_due then
    select t.place into head
      from cnapi_waitlist_tickets t
      where t.queue = p_queue and t.status = 'queued' and (t.expires_at > p_moment) is true
      order by t.place limit 1;
    return query
      update cnapi_waitlist_tickets t set status = 'expired', updated_at = p_moment
        where t.queue = p_queue and t.status = 'queued' and t.place < coalesce(head, 9223372036854775807)
        returning t.uuid, t.status;
  end if;
  if head is null then
    delete from cnapi_waitlist_queues q where q.key = p_queue;
    return;
  end if;
  return query
    update cnapi_waitlist_tickets t set status = 'active', updated_at = p_moment, active_at = p_moment
      where t.queue = p_queue and t.status = 'queued' and t.place = head
      returning t.uuid, t.status;
end $$;
`;

/**
 * Adds a ticket at the end of its queue; it is active at once if it is the first. Returns the queue
 * in order: the active ticket, at most p_most_listed waiting tickets, and the new one. Returns
 * nothing when p_most_waiting tickets already wait.
 *
 * The counter of the queue's row gives the place. The number of waiting tickets is at most the
 * distance between the active ticket's place and the last place. So they usually need not be
 * counted.
 */
export const createFunction = `
create function cnapi_create_ticket(
  p_uuid uuid, p_server_uuid text, p_scope text, p_id text, p_action text, p_extra json, p_reqid text,
  p_expires_at timestamptz, p_expires_in_ms bigint, p_expires_text text, p_most_waiting int, p_most_listed int
) returns setof cnapi_waitlist_tickets language plpgsql volatile as $$
declare
  mine record;
  is_first boolean;
  moment timestamptz;
begin
  insert into cnapi_waitlist_queues as q (server_uuid, scope, id, last_place, created_at, updated_at)
    values (p_server_uuid, p_scope, p_id, 1, cnapi_now(), cnapi_now())
    on conflict (server_uuid, scope, id) do update set last_place = q.last_place + 1, updated_at = excluded.updated_at
    returning q.key, q.last_place into mine;
  moment := cnapi_now();
  is_first := mine.last_place = 1;
  if mine.last_place - p_most_waiting > (
    select t.place from cnapi_waitlist_tickets t where t.queue = mine.key and t.status = 'active'
  ) and exists (
    select 1 from cnapi_waitlist_tickets t where t.queue = mine.key and t.status = 'queued' offset p_most_waiting - 1
  ) then
    return;
  end if;
  return query
    select * from cnapi_waitlist_tickets t where t.queue = mine.key and t.status = 'active';
  return query
    select * from cnapi_waitlist_tickets t where t.queue = mine.key and t.status = 'queued'
      order by t.place limit p_most_listed;
  return query
    insert into cnapi_waitlist_tickets as t (uuid, queue, place, server_uuid, scope, id, action, extra, reqid, expires_at,
        expires_text, status, created_at, updated_at, active_at)
      values (p_uuid, mine.key, mine.last_place, p_server_uuid, p_scope, p_id, p_action, p_extra, p_reqid,
        coalesce(p_expires_at, moment + p_expires_in_ms * interval '1 ms'), p_expires_text,
        case when is_first then 'active' else 'queued' end, moment, moment, case when is_first then moment end)
      returning t.*;
end $$;
`;

/** Locks the queue of a ticket. Returns null when the ticket does not exist or has ended. */
export const lockFunction = `
create function cnapi_lock_queue_of(p_ticket uuid) returns bigint language plpgsql volatile as $$
declare
  locked bigint;
begin
  select q.key into locked
    from cnapi_waitlist_tickets t
    join cnapi_waitlist_queues q on q.key = t.queue
    where t.uuid = p_ticket and t.status in ('queued', 'active')
    for update of q;
  return locked;
end $$;
`;

/**
 * Finishes an active or queued ticket. Returns the ticket as it is afterwards, and the tickets that
 * moved as a result; nothing when the ticket does not exist.
 */
export const releaseFunction = `
create function cnapi_release_ticket(p_uuid uuid) returns table (uuid uuid, status text, moved boolean)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  mine bigint := cnapi_lock_queue_of(p_uuid);
  moment timestamptz := cnapi_now();
begin
  return query
    update cnapi_waitlist_tickets t set status = 'finished', updated_at = moment
      where t.uuid = p_uuid and t.queue = mine and t.status in ('queued', 'active')
      returning t.uuid, t.status, true;
  if found then
    return query select a.uuid, a.status, true from cnapi_advance_queue(mine, moment) a;
  else
    return query select t.uuid, t.status, false from cnapi_waitlist_tickets t where t.uuid = p_uuid;
  end if;
end $$;
`;

/**
 * Sets when a ticket expires. An ended ticket does not change; a ticket that is already due expires
 * now. Returns the ticket as it is afterwards, and the tickets that moved as a result; nothing when
 * the ticket does not exist.
 */
export const renewFunction = `
create function cnapi_renew_ticket(
  p_uuid uuid, p_expires_at timestamptz, p_expires_in_ms bigint, p_expires_text text
) returns table (uuid uuid, status text, moved boolean) language plpgsql volatile as $$
#variable_conflict use_column
declare
  mine bigint := cnapi_lock_queue_of(p_uuid);
  moment timestamptz := cnapi_now();
begin
  return query
    update cnapi_waitlist_tickets t
      set expires_at = coalesce(p_expires_at, moment + p_expires_in_ms * interval '1 ms'), expires_text = p_expires_text,
        updated_at = moment
      where t.uuid = p_uuid and t.queue = mine and t.status in ('queued', 'active') and t.expires_at > moment
      returning t.uuid, t.status, false;
  if found then
    return;
  end if;
  return query
    update cnapi_waitlist_tickets t set status = 'expired', updated_at = moment
      where t.uuid = p_uuid and t.queue = mine and t.status in ('queued', 'active')
      returning t.uuid, t.status, true;
  if found then
    return query select a.uuid, a.status, true from cnapi_advance_queue(mine, moment) a;
  else
    return query select t.uuid, t.status, false from cnapi_waitlist_tickets t where t.uuid = p_uuid;
  end if;
end $$;
`;

/**
 * Deletes a ticket of any status. Returns it as 'deleted', and the tickets that moved as a result.
 */
export const deleteFunction = `
create function cnapi_delete_ticket(p_uuid uuid) returns table (uuid uuid, status text)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  mine bigint := cnapi_lock_queue_of(p_uuid);
  moment timestamptz := cnapi_now();
begin
  return query delete from cnapi_waitlist_tickets t where t.uuid = p_uuid returning t.uuid, 'deleted';
  if mine is not null then
    return query select a.uuid, a.status from cnapi_advance_queue(mine, moment) a;
  end if;
end $$;
`;

/**
 * Deletes the active and queued tickets of a server, p_most queues at a time. Each queue is deleted
 * as a whole, so that none of its tickets becomes active. Queues created after p_before are kept.
 * Returns the tickets, and null for each queue; no null means that no queue is left.
 */
export const deleteQueuesFunction = `
create function cnapi_delete_queues(p_server_uuid text, p_before timestamptz, p_most int) returns setof uuid
language plpgsql volatile as $$
declare
  held bigint[];
begin
  held := array(
    select q.key from cnapi_waitlist_queues q
      where q.server_uuid = p_server_uuid and q.created_at <= p_before
      order by q.key limit p_most
      for update);
  return query
    delete from cnapi_waitlist_tickets t where t.queue = any (held) and t.status = 'queued' returning t.uuid;
  return query
    delete from cnapi_waitlist_tickets t where t.queue = any (held) and t.status = 'active' returning t.uuid;
  return query
    delete from cnapi_waitlist_queues q where q.key = any (held) returning null::uuid;
end $$;
`;

/**
 * Expires at most p_most due tickets and advances their queues. Returns the tickets that moved. A
 * queue that loses its active ticket may also lose all tickets waiting behind it; the call stops
 * after the queue that brings the number of moved tickets to p_most. A queue or ticket in use is
 * skipped until the next call and does not count towards p_most.
 */
const expire = (status: string) => `
create or replace function cnapi_expire_tickets(p_most int) returns table (uuid uuid, status text)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  moment timestamptz := cnapi_now();
  due uuid[];
  held bigint[];
  one bigint;
  passed bigint;
  moved bigint := 0;
begin
  select array_agg(d.uuid), array_agg(distinct d.queue) into due, held
    from (
      select t.uuid, t.queue from cnapi_waitlist_tickets t join cnapi_waitlist_queues q on q.key = t.queue
        where ${status} in ('queued', 'active') and t.expires_at <= moment
        order by t.expires_at limit p_most
        for update of q, t skip locked
    ) as d;
  if due is null then
    return;
  end if;
  moment := cnapi_now();
  return query
    update cnapi_waitlist_tickets t set status = 'expired', updated_at = moment
      where t.uuid = any (due) and t.queue = any (held) and t.status = 'queued' and t.expires_at <= moment
      returning t.uuid, t.status;
  foreach one in array held loop
    exit when moved >= p_most;
    return query
      update cnapi_waitlist_tickets t set status = 'expired', updated_at = moment
        where t.queue = one and t.status = 'active' and t.uuid = any (due) and (t.expires_at <= moment) is true
        returning t.uuid, t.status;
    continue when not found;
    return query select a.uuid, a.status from cnapi_advance_queue(one, moment) a;
    get diagnostics passed = row_count;
    moved := moved + passed;
  end loop;
end $$;
`;

/** The first version, under its migration: with outdated statistics it reads whole indexes. */
export const skippingExpireFunction = expire('t.status');
export const expireFunction = expire("(t.status || '')");

/**
 * Advances queues that have no active ticket, at most p_most. Such queues must not exist. A queue
 * in use is skipped until the next call. Returns these queues and the tickets that moved. The
 * lookup for each queue is written so that the planner cannot turn it into a join: with outdated
 * statistics that would join all queues with all tickets.
 */
export const repairFunction = `
create or replace function cnapi_mend_queues(p_most int) returns table (queue bigint, uuid uuid, status text)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  held bigint[];
  one bigint;
  moment timestamptz;
begin
  held := array(
    select q.key from cnapi_waitlist_queues q
      where (select t.uuid from cnapi_waitlist_tickets t where t.queue = q.key and t.status = 'active') is null
      limit p_most for update skip locked);
  moment := cnapi_now();
  foreach one in array held loop
    continue when exists (select 1 from cnapi_waitlist_tickets t where t.queue = one and t.status = 'active');
    return query select one, null::uuid, null::text;
    return query select one, a.uuid, a.status from cnapi_advance_queue(one, moment) a;
  end loop;
end $$;
`;

/**
 * Like cnapi_create_ticket, but only if the server has fewer than p_most_open active and queued
 * tickets in all its queues. Simultaneous creates may exceed that limit by a few, because nothing
 * is locked for it. The answer is kept small because the queue's row stays locked until it is read.
 */
export const addFunction = `
create index if not exists cnapi_waitlist_open on cnapi_waitlist_tickets (server_uuid) where (status || '') in ('queued', 'active');
create function cnapi_add_ticket(
  p_uuid uuid, p_server_uuid text, p_scope text, p_id text, p_action text, p_extra json, p_reqid text,
  p_expires_at timestamptz, p_expires_in_ms bigint, p_expires_text text, p_most_waiting int, p_most_open int
) returns text language plpgsql volatile as $$
begin
  if exists (
    select 1 from cnapi_waitlist_tickets t
      where t.server_uuid = p_server_uuid and (t.status || '') in ('queued', 'active') offset p_most_open - 1
  ) then
    return 'server-full';
  end if;
  perform 1 from cnapi_create_ticket(p_uuid, p_server_uuid, p_scope, p_id, p_action, p_extra, p_reqid, p_expires_at,
    p_expires_in_ms, p_expires_text, p_most_waiting, 0) t where t.uuid = p_uuid;
  return case when found then 'added' else 'queue-full' end;
end $$;
`;
