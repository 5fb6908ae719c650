/**
 * The waitlist's operations, as functions of the database (law 5): VOLATILE, so that each statement in them reads afresh;
 * the queue's row locked first, several in the order of their keys; the time once, after the locks; then the work; then
 * the queue is advanced. Called by `ticket-store.ts` only.
 *
 * A queue's row is there as long as it has a ticket that is active or queued, and then one of them is active. Whoever
 * waited for the lock of a row that is gone finds none, and so knows that the ticket has ended. Ended tickets do not
 * change: they need no lock.
 */

/**
 * Hands the queue, whose lock the caller holds, to the first that waits and whose time is not up; those before it expire. The
 * row of a queue that is empty goes. Returns the tickets it moved.
 *
 * A time compared plainly would tempt the planner to the index of what is due, over all queues; with `is true` it cannot.
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
 * Adds a ticket at the end of its queue; active if it is the first. Returns the queue in order: the active ticket, at most
 * p_most_listed of those that wait, and the new one; nothing when p_most_waiting wait already.
 *
 * The row's counter gives the place. Between the active ticket's place and the last one there are no fewer places than
 * tickets that wait, so that as a rule they need not be counted.
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

/** Locks the queue of a ticket; null when there is no such ticket, or when it has ended. */
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
 * Finishes a ticket, active or queued. Returns it as it is then, and the tickets that moved by it; nothing when there is no
 * such ticket.
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
 * Sets when a ticket expires, unless it has ended or its time is up: then it expires now. Returns it as it is then, and the
 * tickets that moved by it; nothing when there is no such ticket.
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

/** Deletes a ticket of any status. Returns it as 'deleted', and the tickets that moved by it. */
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
 * Deletes the active and queued tickets of a server, p_most queues at a time and each as a whole, so that none of their
 * tickets becomes active; not of queues that began after p_before. Returns the tickets, and null for each queue: without
 * one there are no more.
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
 * Expires what is due, p_most tickets at a time, and advances their queues. Returns the tickets that moved. A queue that
 * loses its holder may lose all that wait behind it in the same moment: it is the last one then that this call takes.
 */
export const expireFunction = `
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
  select array_agg(d.uuid), array_agg(d.queue) into due, held
    from (
      select t.uuid, t.queue from cnapi_waitlist_tickets t
        where t.status in ('queued', 'active') and t.expires_at <= moment
        order by t.expires_at limit p_most
    ) as d;
  if due is null then
    return;
  end if;
  held := array(select q.key from cnapi_waitlist_queues q where q.key = any (held) order by q.key for update);
  moment := cnapi_now();
  return query
    update cnapi_waitlist_tickets t set status = 'expired', updated_at = moment
      where t.uuid = any (due) and t.queue = any (held) and t.status = 'queued' and t.expires_at <= moment
      returning t.uuid, t.status;
  foreach one in array held loop
    exit when moved >= p_most;
    return query
      update cnapi_waitlist_tickets t set status = 'expired', updated_at = moment
        where t.queue = one and t.status = 'active' and (t.expires_at <= moment) is true
        returning t.uuid, t.status;
    continue when not found;
    return query select a.uuid, a.status from cnapi_advance_queue(one, moment) a;
    get diagnostics passed = row_count;
    moved := moved + passed;
  end loop;
end $$;
`;

/**
 * Advances queues without an active ticket, which there must not be: at most p_most. Returns which, and what moved. The
 * look at each queue is one that the planner cannot turn into a join, which would be of all with all by outdated statistics.
 */
export const mendFunction = `
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
      limit p_most);
  held := array(select q.key from cnapi_waitlist_queues q where q.key = any (held) order by q.key for update);
  moment := cnapi_now();
  foreach one in array held loop
    continue when exists (select 1 from cnapi_waitlist_tickets t where t.queue = one and t.status = 'active');
    return query select one, null::uuid, null::text;
    return query select one, a.uuid, a.status from cnapi_advance_queue(one, moment) a;
  end loop;
end $$;
`;
