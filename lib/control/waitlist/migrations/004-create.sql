-- Sets how long the statement waits for each lock, unless p_ms is null, and returns p_value. As the
-- argument of a function it is carried out before that function. A setting that is sent with the
-- statement would cost a prepared statement its plan.
create function cnapi_lock_within(p_ms int, p_value anyelement) returns anyelement
language plpgsql volatile as $$
begin
  if p_ms is not null then
    perform set_config('lock_timeout', p_ms || 'ms', true);
  end if;
  return p_value;
end $$;

-- Adds a ticket at the end of its queue; it is active immediately if it is the first. Returns false
-- when p_most_waiting tickets already wait.
--
-- The counter of the queue's row gives the place. The number of waiting tickets is at most the
-- distance between the active ticket's place and the last place. So they usually need not be
-- counted.
create function cnapi_create_ticket(
  p_uuid uuid, p_server_uuid text, p_scope text, p_id text, p_action text, p_extra json,
  p_reqid text, p_actor text, p_expires_at timestamptz, p_expires_in_ms bigint,
  p_expires_text text, p_most_waiting int
) returns boolean language plpgsql volatile as $$
declare
  mine record;
  is_first boolean;
  moment timestamptz;
begin
  insert into cnapi_waitlist_queues as q
      (server_uuid, scope, id, last_place, created_at, updated_at)
    values (p_server_uuid, p_scope, p_id, 1, cnapi_now(), cnapi_now())
    on conflict (server_uuid, scope, id)
      do update set last_place = q.last_place + 1, updated_at = excluded.updated_at
    returning q.key, q.last_place into mine;
  moment := cnapi_now();
  is_first := mine.last_place = 1;
  if mine.last_place - p_most_waiting > (
    select t.place from cnapi_waitlist_tickets t where t.queue = mine.key and t.status = 'active'
  ) and exists (
    select 1 from cnapi_waitlist_tickets t
      where t.queue = mine.key and t.status = 'queued' offset p_most_waiting - 1
  ) then
    return false;
  end if;
  insert into cnapi_waitlist_tickets (uuid, queue, place, server_uuid, scope, id, action, extra,
      reqid, actor, expires_at, expires_text, status, created_at, updated_at, active_at)
    values (p_uuid, mine.key, mine.last_place, p_server_uuid, p_scope, p_id, p_action, p_extra,
      p_reqid, p_actor, coalesce(p_expires_at, moment + p_expires_in_ms * interval '1 ms'),
      p_expires_text, case when is_first then 'active' else 'queued' end, moment, moment,
      case when is_first then moment end);
  return true;
end $$;

-- Creates a ticket if the server has fewer than p_most_open active and queued tickets in all its
-- queues. Simultaneous creates may exceed that limit by a few, because nothing is locked for it.
-- The answer is kept small because the queue's row stays locked until it is read.
create function cnapi_add_ticket(
  p_uuid uuid, p_server_uuid text, p_scope text, p_id text, p_action text, p_extra json,
  p_reqid text, p_actor text, p_expires_at timestamptz, p_expires_in_ms bigint,
  p_expires_text text, p_most_waiting int, p_most_open int
) returns text language plpgsql volatile as $$
begin
  if exists (
    select 1 from cnapi_waitlist_tickets t
      where t.server_uuid = p_server_uuid and (t.status || '') in ('queued', 'active')
      offset p_most_open - 1
  ) then
    return 'server-full';
  elsif cnapi_create_ticket(p_uuid, p_server_uuid, p_scope, p_id, p_action, p_extra, p_reqid,
      p_actor, p_expires_at, p_expires_in_ms, p_expires_text, p_most_waiting) then
    return 'added';
  end if;
  return 'queue-full';
end $$;
