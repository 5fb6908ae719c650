-- What callers change in a job that goes on. Each function locks the job's row, which the coordinator
-- locks in each of its steps; then nodes, in key order, which it finds by index as 002-votes.sql does.

-- Requests the abort of some nodes of a job. A node that has ended stays as it is. Returns the job's
-- state, and some of those servers that are no nodes of it: then nothing was requested.
create function cnapi_request_abort_of_push_nodes(p_job uuid, p_servers uuid[], p_how text)
returns table (state text, strange uuid[])
language plpgsql volatile
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
  picked uuid[];
begin
  select j.state into state from cnapi_push_jobs j where j.id = p_job for share;
  if not found then
    return;
  end if;
  strange := array(
    select u.server_uuid from unnest(p_servers) as u (server_uuid)
      where (select true from cnapi_push_nodes n
          where n.job = p_job and n.server_uuid = u.server_uuid) is null
      limit 10);
  if state <> 'ended' and cardinality(strange) = 0 then
    picked := array(
      select w.server_uuid
        from (
          select u.server_uuid from unnest(p_servers) as u (server_uuid)
            order by u.server_uuid offset 0
        ) as w
        cross join lateral (
          select 1 from cnapi_push_nodes n
            where n.job = p_job and n.server_uuid = w.server_uuid
              and (n.state || '') in ('new', 'ready', 'running') for update) as n);
    update cnapi_push_nodes n
      set abort_requested = case n.abort_requested when 'hard' then 'hard' else p_how end
      from (
        select p_job as job, u.server_uuid from unnest(picked) as u (server_uuid) offset 0
      ) as w
      where n.job = any (array[w.job]) and n.server_uuid = any (array[w.server_uuid]);
  end if;
  return next;
end $$;
