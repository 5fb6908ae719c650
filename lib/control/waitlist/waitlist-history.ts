/**
 * Earlier versions of the waitlist's operations. An applied migration never changes, so their text
 * stays; `waitlist-functions.ts` has the current versions. The first two took due tickets from the
 * head of a queue one by one, and each step read past all rows that the call had just written: 4 s
 * for 10,000 tickets, and one expiry of 200 tickets may meet as many such queues.
 */

/** Replaced by `advanceFunction`. */
export const firstAdvanceFunction = `
create function cnapi_advance_queue(p_queue bigint, p_moment timestamptz) returns table (uuid uuid, status text)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  head record;
begin
  if exists (select 1 from cnapi_waitlist_tickets t where t.queue = p_queue and t.status = 'active') then
    return;
  end if;
  loop
    select t.uuid, t.expires_at <= p_moment as is_due into head
      from cnapi_waitlist_tickets t
      where t.queue = p_queue and t.status = 'queued'
      order by t.place limit 1;
    if not found then
      delete from cnapi_waitlist_queues q where q.key = p_queue;
      return;
    end if;
    return query
      update cnapi_waitlist_tickets t
        set status = case when head.is_due then 'expired' else 'active' end, updated_at = p_moment,
          active_at = case when not head.is_due then p_moment end
        where t.uuid = head.uuid
        returning t.uuid, t.status;
    exit when not head.is_due;
  end loop;
end $$;
`;

/** Replaced by `expireFunction`. */
export const firstExpireFunction = `
create function cnapi_expire_tickets(p_most int) returns table (uuid uuid, status text) language plpgsql volatile as $$
#variable_conflict use_column
declare
  moment timestamptz := cnapi_now();
  due uuid[];
  held bigint[];
  one bigint;
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
      where t.uuid = any (due) and t.queue = any (held) and t.status in ('queued', 'active') and t.expires_at <= moment
      returning t.uuid, t.status;
  foreach one in array held loop
    return query select a.uuid, a.status from cnapi_advance_queue(one, moment) a;
  end loop;
end $$;
`;

/**
 * Replaced by `repairFunction`: where the planner expected few rows, it compared all queues with all
 * active tickets.
 */
export const firstRepairFunction = `
create function cnapi_mend_queues(p_most int) returns table (queue bigint, uuid uuid, status text)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  held bigint[];
  one bigint;
  moment timestamptz;
begin
  held := array(
    select q.key from cnapi_waitlist_queues q
      where not exists (select 1 from cnapi_waitlist_tickets t where t.queue = q.key and t.status = 'active')
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

/** Replaced by `expireFunction`: one queue in use delayed all others. */
export const waitingExpireFunction = `
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

/** Replaced by `repairFunction`, for the same reason. */
export const waitingRepairFunction = `
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

/**
 * Limits the tickets of a queue only. Its replacement in ticket-keys.ts also limits the tickets of
 * a server.
 */
export const firstCreateOnceFunction = `
create function cnapi_create_ticket_once(
  p_key text, p_hash text, p_uuid uuid, p_server_uuid text, p_scope text, p_id text, p_action text, p_extra json,
  p_reqid text, p_expires_at timestamptz, p_expires_in_ms bigint, p_expires_text text, p_most_waiting int
) returns table (made uuid, made_by text) language plpgsql volatile as $$
begin
  perform pg_advisory_xact_lock(hashtextextended(p_server_uuid || ' ' || p_key, 0));
  return query
    select k.ticket, k.request_hash from cnapi_waitlist_keys k
      where k.server_uuid = p_server_uuid and k.idempotency_key = p_key;
  if found then
    return;
  end if;
  perform 1 from cnapi_create_ticket(p_uuid, p_server_uuid, p_scope, p_id, p_action, p_extra, p_reqid, p_expires_at,
    p_expires_in_ms, p_expires_text, p_most_waiting, 0) t where t.uuid = p_uuid;
  if not found then
    return;
  end if;
  insert into cnapi_waitlist_keys (server_uuid, idempotency_key, request_hash, ticket)
    values (p_server_uuid, p_key, p_hash, p_uuid);
  return query select p_uuid, p_hash;
end $$;
`;
