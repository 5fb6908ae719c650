-- What callers change in a job that goes on. Each function locks the job's row, which the
-- coordinator locks in each of its steps; then nodes, in key order, which it finds by index as
-- 002-votes.sql does.

-- Requests the abort of some nodes of a job. A node that has ended stays as it is. Returns the
-- job's state, and some of those servers that are no nodes of it: then nothing was requested.
create function cnapi_request_abort_of_push_nodes(p_job uuid, p_servers uuid[], p_how text)
returns table (state text, missing uuid[])
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
  missing := array(
    select u.server_uuid from unnest(p_servers) as u (server_uuid)
      where (select true from cnapi_push_nodes n
          where n.job = p_job and n.server_uuid = u.server_uuid) is null
      limit 10);
  if state <> 'ended' and cardinality(missing) = 0 then
    picked := array(
      select w.server_uuid
        from (
          select u.server_uuid from unnest(p_servers) as u (server_uuid)
            order by u.server_uuid offset 0
        ) as w
        cross join lateral (
          select 1 from cnapi_push_nodes n
            where n.job = p_job and n.server_uuid = w.server_uuid
              and cnapi_is_push_node_open(n.state || '') for update) as n);
    update cnapi_push_nodes n
      set abort_requested = case n.abort_requested when 'hard' then 'hard' else p_how end
      from (
        select p_job as job, u.server_uuid from unnest(picked) as u (server_uuid) offset 0
      ) as w
      where n.job = any (array[w.job]) and n.server_uuid = any (array[w.server_uuid]);
  end if;
  return next;
end $$;

-- How many nodes a percentage is, as quorumOf in push-job.ts has it.
create function cnapi_push_quorum(p_percent float8, p_nodes int) returns int
language sql immutable strict as $$
  select greatest(1, ceil(p_percent / 100 * p_nodes - 1e-9))::int
$$;

-- Adds nodes to a job that votes or runs, while votes count: for p_tick_ms per tick. Returns why
-- nothing was added:
--
--     waiting   the job waits for its ticket
--     aborting  it is being aborted, or a caller has asked for that
--     ended     it has ended
--     late      its voting is over
--     present   some of these servers, which are named, are nodes already
--     full      it would have more than p_most nodes
create function cnapi_add_push_nodes(
  p_job uuid, p_servers uuid[], p_names text[], p_most int, p_tick_ms int
) returns table (refusal text, present uuid[])
language plpgsql volatile
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
  job cnapi_push_jobs;
  nodes int;
begin
  select * into job from cnapi_push_jobs j where j.id = p_job for update;
  if not found then
    return;
  end if;
  nodes := job.node_count + cardinality(p_servers);
  present := array(
    select u.server_uuid from unnest(p_servers) as u (server_uuid)
      where (select true from cnapi_push_nodes n
          where n.job = p_job and n.server_uuid = u.server_uuid)
      limit 10);
  refusal := case
    when job.state = 'ended' then 'ended'
    when job.state = 'aborting' or job.abort_requested is not null then 'aborting'
    when job.state = 'waiting' then 'waiting'
    when (cnapi_tick() - job.created_tick) * p_tick_ms >= job.voting_timeout_ms then 'late'
    when cardinality(present) > 0 then 'present'
    when nodes > p_most then 'full' end;
  if refusal is null then
    insert into cnapi_push_nodes (job, server_uuid, name, state, reason)
      select p_job, n.server_uuid, n.name,
          case when p.run is null then cnapi_next_push_node('new', 'down', false) else 'new' end,
          case when p.run is null then 'down' end
        from unnest(p_servers, p_names) as n (server_uuid, name)
        join cnapi_presence(p_servers) as p on p.server_uuid = n.server_uuid
        order by n.server_uuid;
    update cnapi_push_jobs j
      set node_count = nodes,
          quorum = case when job.state = 'voting' and job.quorum_percent is not null
            then cnapi_push_quorum(job.quorum_percent, nodes) else job.quorum end
      where j.id = p_job;
  end if;
  return next;
end $$;
