-- Advances queues that have no active ticket, at most p_most. Such queues must not exist. A queue
-- in use is skipped until the next call. Returns these queues and the tickets that moved.
--
-- The lookup for each queue is written so that the planner cannot turn it into a join: with
-- outdated statistics that would join all queues with all tickets. Without sequential scans it uses
-- the index even if the tables were small when the connection planned it: a connection keeps its
-- plan until the next `analyze`. Such a query costs so much by the planner's estimate that Postgres
-- before 18 compiles it each time: it took 200 ms instead of 1. So it is not compiled.
create function cnapi_repair_queues(p_most int)
returns table (queue bigint, uuid uuid, status text)
language plpgsql volatile set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
  held bigint[];
  one bigint;
  moment timestamptz;
begin
  held := array(
    select q.key from cnapi_waitlist_queues q
      where (
        select t.uuid from cnapi_waitlist_tickets t where t.queue = q.key and t.status = 'active'
      ) is null
      limit p_most for update skip locked);
  moment := cnapi_now();
  foreach one in array held loop
    continue when exists (
      select 1 from cnapi_waitlist_tickets t where t.queue = one and t.status = 'active');
    return query select one, null::uuid, null::text;
    return query select one, a.uuid, a.status from cnapi_advance_queue(one, moment) a;
  end loop;
end $$;
