-- Stores what agents answer. Called by the instances that hold their sessions. Votes lock the jobs'
-- rows `for share`, then the nodes, then the servers' rows in `cnapi_push_busy`, each in key order.
-- So a coordinator that has locked the job's row sees every vote that was stored, and a vote that
-- comes later sees what the coordinator did. Locked rows are skipped and returned as 'locked' (law
-- 9).

-- Stores votes, one for each job and server. p_reasons: of those that are not ready, one of
-- VOTE_REASONS in lib/protocol/push.ts. The values of `what`:
--
--     stored   the node is what the agent says, now or since an earlier report
--     refused  the agent is ready, but takes no part: it must be told to forget the job
--     locked   store this vote again a little later
--
-- Each statement goes from the votes to the rows by index, whatever the planner knows of the tables
-- (lib/control/tasks/migrations/005-claim-for-sessions.sql says how). With a plan of its own choice
-- it once compared each vote with all nodes of the job: 8 s for 500 votes. 002-tasks.sql explains
-- the conditions on `state || ''`. `free` holds the places, in the parameters, of the votes whose
-- rows are locked here.
create function cnapi_store_push_votes(
  p_jobs uuid[], p_servers uuid[], p_incarnations uuid[], p_ready boolean[], p_reasons text[],
  p_messages text[], p_busy_with uuid[]
) returns table (job uuid, server_uuid uuid, what text)
language plpgsql volatile
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
  free_jobs uuid[];
  open_jobs uuid[];
  free int[];
  entering_or_leaving int[];
  free_servers uuid[];
  taken uuid[];
  moment timestamptz;
begin
  free_jobs := array(
    select j.id from cnapi_push_jobs j where j.id = any (p_jobs) order by j.id
      for share skip locked);
  free := array(
    select v.place
      from (
        select u.job, u.server_uuid, u.place
          from unnest(p_jobs, p_servers) with ordinality as u (job, server_uuid, place)
          where u.job = any (free_jobs) order by u.job, u.server_uuid offset 0
      ) as v
      cross join lateral (
        select 1 from cnapi_push_nodes n where n.job = v.job and n.server_uuid = v.server_uuid
          for update skip locked) as n);
  -- So that neither the insert nor the delete below waits for whoever has such a row. Only a row that
  -- another statement of votes has inserted since can still hold up the insert, until that one ends.
  entering_or_leaving := array(
    select f.place from unnest(free) as f (place)
      cross join lateral (
        select 1 from cnapi_push_nodes n
          where n.job = p_jobs[f.place] and n.server_uuid = p_servers[f.place]
            and (n.state || '') = case when p_ready[f.place] then 'new' else 'ready' end
          offset 0) as n);
  free_servers := array(
    select b.server_uuid from unnest(entering_or_leaving) as e (place)
      cross join lateral (
        select o.server_uuid from cnapi_push_busy o where o.server_uuid = p_servers[e.place]
          for update skip locked) as b);
  free := array(
    select f.place from unnest(free) as f (place)
      left join lateral (
        select b.server_uuid from cnapi_push_busy b
          where b.server_uuid = p_servers[f.place] offset 0) as b on true
      where b.server_uuid is null or b.server_uuid = any (free_servers)
        or not f.place = any (entering_or_leaving));
  moment := cnapi_now();
  open_jobs := array(
    select j.id from cnapi_push_jobs j
      where j.id = any (free_jobs) and j.state in ('voting', 'running'));
  with inserted as (
    insert into cnapi_push_busy as b (server_uuid, job)
      select p_servers[f.place], p_jobs[f.place] from unnest(free) as f (place)
        cross join lateral (
          select 1 from cnapi_push_nodes n
            where n.job = p_jobs[f.place] and n.server_uuid = p_servers[f.place]
              and (n.state || '') = 'new' offset 0) as n
        where p_ready[f.place] and p_jobs[f.place] = any (open_jobs)
        order by p_servers[f.place], p_jobs[f.place]
      on conflict (server_uuid) do nothing
      returning b.server_uuid
  )
  select coalesce(array_agg(i.server_uuid), '{}') into taken from inserted i;
  update cnapi_push_nodes n
    set state = cnapi_next_push_node('new', v.event, false),
        reason = cnapi_push_node_reason(v.event),
        message = case when v.ready then null else v.message end,
        busy_with = case when v.ready and v.has <> v.job then v.has
          when v.ready then null else v.busy_with end,
        incarnation = v.incarnation, updated_at = moment
    from (
      select p_jobs[f.place] as job, p_servers[f.place] as server_uuid,
          p_incarnations[f.place] as incarnation, p_ready[f.place] as ready,
          case when not p_ready[f.place] then p_reasons[f.place]
            when b.job = p_jobs[f.place] then 'voted' else 'busy' end as event,
          p_messages[f.place] as message, p_busy_with[f.place] as busy_with, b.job as has
        from unnest(free) as f (place)
        left join lateral (
          select o.job from cnapi_push_busy o
            where o.server_uuid = p_servers[f.place] offset 0) as b on true
    ) as v
    where n.job = any (array[v.job]) and n.server_uuid = any (array[v.server_uuid])
      and v.job = any (open_jobs)
      and (n.state || '') = 'new' and (not v.ready or v.has is not null);
  -- A vote that is withdrawn before its start.
  with withdrawn as (
    update cnapi_push_nodes n
      set state = cnapi_next_push_node('ready', v.reason, false), reason = v.reason,
          message = v.message, updated_at = moment
      from (
        select p_jobs[f.place] as job, p_servers[f.place] as server_uuid,
            p_incarnations[f.place] as incarnation, p_reasons[f.place] as reason,
            p_messages[f.place] as message
          from unnest(free) as f (place) where not p_ready[f.place]
      ) as v
      where n.job = any (array[v.job]) and n.server_uuid = any (array[v.server_uuid])
        and (n.state || '') = 'ready' and n.task is null
        and n.incarnation = v.incarnation and not n.server_uuid = any (taken)
      returning n.job, n.server_uuid
  )
  delete from cnapi_push_busy b using withdrawn w
    where b.server_uuid = any (array[w.server_uuid]) and b.job = w.job;
  return query
    select v.job, v.server_uuid,
        case
          when n.state is null then case when v.ready then 'refused' else 'stored' end
          when not v.place = any (free) then 'locked'
          when not v.ready then 'stored'
          when n.state in ('ready', 'running') and n.incarnation = v.incarnation then 'stored'
          -- Whoever had the server has left it since: the vote is stored the next time.
          when n.state = 'new' and v.job = any (open_jobs) then 'locked'
          else 'refused' end
      from unnest(p_jobs, p_servers, p_ready, p_incarnations) with ordinality
          as v (job, server_uuid, ready, incarnation, place)
      left join lateral (
        select o.state, o.incarnation from cnapi_push_nodes o
          where o.job = v.job and o.server_uuid = v.server_uuid offset 0) as n on true;
end $$;

-- These agents no longer take part in these jobs, so their servers leave rehab. Returns those whose
-- rows are locked.
create function cnapi_end_push_rehab(p_servers uuid[], p_jobs uuid[]) returns setof uuid
language plpgsql volatile
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
  free uuid[];
begin
  free := array(
    select a.server_uuid
      from (
        select u.server_uuid, u.job from unnest(p_servers, p_jobs) as u (server_uuid, job)
          order by u.server_uuid offset 0
      ) as a
      cross join lateral (
        select 1 from cnapi_push_busy b
          where b.server_uuid = a.server_uuid and b.job = a.job and b.rehab_since is not null
          for update skip locked) as b);
  delete from cnapi_push_busy b where b.server_uuid = any (free);
  return query
    select a.server_uuid from unnest(p_servers, p_jobs) as a (server_uuid, job)
      cross join lateral (
        select 1 from cnapi_push_busy b
          where b.server_uuid = a.server_uuid and b.job = a.job and b.rehab_since is not null
          offset 0) as b;
end $$;
