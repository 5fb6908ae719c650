/**
 * Operations of the waitlist as they first were. An applied step does not change, so their text stays; `waitlist-functions.ts`
 * has what replaced them. The first two took the tickets whose time is up from the head of a queue one by one, each time past all that
 * they had just written: 4 s for 10,000 of them, and as many queues at once as an expiry of 200 tickets meets.
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

/** Replaced by `mendFunction`: all queues against all active tickets, where the planner thought them few. */
export const firstMendFunction = `
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
