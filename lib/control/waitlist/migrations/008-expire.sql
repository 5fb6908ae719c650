-- Expires at most p_most due tickets and advances their queues. Returns the tickets that moved. A
-- queue that loses its active ticket may also lose all tickets waiting behind it; the call stops
-- after the queue that brings the number of moved tickets to p_most. A queue or ticket in use is
-- skipped until the next call and does not count towards p_most.
create function cnapi_expire_tickets(p_most int) returns table (uuid uuid, status text)
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
      select t.uuid, t.queue
        from cnapi_waitlist_tickets t join cnapi_waitlist_queues q on q.key = t.queue
        where (t.status || '') in ('queued', 'active') and t.expires_at <= moment
        order by t.expires_at limit p_most
        for update of q, t skip locked
    ) as d;
  if due is null then
    return;
  end if;
  moment := cnapi_now();
  return query
    update cnapi_waitlist_tickets t set status = 'expired', updated_at = moment
      where t.uuid = any (due) and t.queue = any (held) and t.status = 'queued'
        and t.expires_at <= moment
      returning t.uuid, t.status;
  foreach one in array held loop
    exit when moved >= p_most;
    return query
      update cnapi_waitlist_tickets t set status = 'expired', updated_at = moment
        where t.queue = one and t.status = 'active' and t.uuid = any (due)
          and (t.expires_at <= moment) is true
        returning t.uuid, t.status;
    continue when not found;
    return query select a.uuid, a.status from cnapi_advance_queue(one, moment) a;
    get diagnostics passed = row_count;
    moved := moved + passed;
  end loop;
end $$;
