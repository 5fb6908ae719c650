-- What agents say. Called by the instances that hold their sessions. Votes lock the jobs' rows
-- `for share`, then the nodes, then the servers' rows in `cnapi_push_busy`, each in key order. So a
-- coordinator that has locked the job's row sees every vote that was stored, and a vote that comes
-- later sees what the coordinator did. Locked rows are skipped and returned as 'locked' (law 9).

-- Stores votes, one for each job and server. The values of `what`:
--
--     stored   the node is what the agent says, now or since an earlier report
--     refused  the agent is ready, but takes no part: it must be told to forget the job
--     locked   store this vote again a little later
create function cnapi_store_push_votes(
  p_jobs uuid[], p_servers uuid[], p_incarnations uuid[], p_ready boolean[], p_reasons text[],
  p_messages text[], p_busy_with uuid[]
) returns table (job uuid, server_uuid uuid, what text)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  free_jobs uuid[];
  free_keys text[];
  taken uuid[];
  moment timestamptz;
begin
  free_jobs := array(
    select j.id from cnapi_push_jobs j where j.id = any (p_jobs) order by j.id
      for share skip locked);
  free_keys := array(
    select n.job || ' ' || n.server_uuid from cnapi_push_nodes n
      where (n.job, n.server_uuid) in (
          select v.job, v.server_uuid from unnest(p_jobs, p_servers) as v (job, server_uuid)
            where v.job = any (free_jobs))
      order by n.job, n.server_uuid for update skip locked);
  moment := cnapi_now();
  with wanted as (
    select v.job, v.server_uuid
      from unnest(p_jobs, p_servers, p_ready) as v (job, server_uuid, ready)
      join cnapi_push_nodes n on n.job = v.job and n.server_uuid = v.server_uuid
      join cnapi_push_jobs j on j.id = v.job
      where v.ready and v.job || ' ' || v.server_uuid = any (free_keys)
        and n.state = 'new' and j.state in ('voting', 'running')
  ), inserted as (
    insert into cnapi_push_busy as b (server_uuid, job)
      select w.server_uuid, w.job from wanted w order by w.server_uuid, w.job
      on conflict (server_uuid) do nothing
      returning b.server_uuid, b.job
  )
  select coalesce(array_agg(i.server_uuid), '{}') into taken from inserted i;
  update cnapi_push_nodes n
    set state = case
          when v.ready and b.job = v.job then 'ready'
          when v.ready or v.reason = 'busy' then 'nacked'
          when v.reason in ('not-allowed', 'bad-options') then 'nacked'
          else 'unavailable' end,
        reason = case when v.ready and b.job = v.job then null
          when v.ready then 'busy' else v.reason end,
        message = case when v.ready then null else v.message end,
        busy_with = case when v.ready and b.job <> v.job then b.job
          when v.ready then null else v.busy_with end,
        incarnation = v.incarnation, updated_at = moment
    from unnest(p_jobs, p_servers, p_incarnations, p_ready, p_reasons, p_messages, p_busy_with)
        as v (job, server_uuid, incarnation, ready, reason, message, busy_with)
      join cnapi_push_jobs j on j.id = v.job
      left join cnapi_push_busy b on b.server_uuid = v.server_uuid
    where n.job = v.job and n.server_uuid = v.server_uuid
      and v.job || ' ' || v.server_uuid = any (free_keys)
      and n.state = 'new' and j.state in ('voting', 'running')
      and (not v.ready or b.job is not null);
  -- A vote that is withdrawn before its start.
  with withdrawn as (
    update cnapi_push_nodes n
      set state = 'unavailable', reason = v.reason, message = v.message, updated_at = moment
      from unnest(p_jobs, p_servers, p_incarnations, p_ready, p_reasons, p_messages)
          as v (job, server_uuid, incarnation, ready, reason, message)
      where n.job = v.job and n.server_uuid = v.server_uuid
        and v.job || ' ' || v.server_uuid = any (free_keys)
        and not v.ready and n.state = 'ready' and n.task is null
        and n.incarnation = v.incarnation and not n.server_uuid = any (taken)
      returning n.job, n.server_uuid
  )
  delete from cnapi_push_busy b using withdrawn w
    where b.server_uuid = w.server_uuid and b.job = w.job;
  return query
    select v.job, v.server_uuid,
        case
          when n.job is null then case when v.ready then 'refused' else 'stored' end
          when not v.job || ' ' || v.server_uuid = any (free_keys) then 'locked'
          when not v.ready then 'stored'
          when n.state in ('ready', 'running') and n.incarnation = v.incarnation then 'stored'
          -- Whoever had the server has left it since: the vote is stored the next time.
          when n.state = 'new' and j.state in ('voting', 'running') then 'locked'
          else 'refused' end
      from unnest(p_jobs, p_servers, p_ready, p_incarnations)
          as v (job, server_uuid, ready, incarnation)
      left join cnapi_push_nodes n on n.job = v.job and n.server_uuid = v.server_uuid
      left join cnapi_push_jobs j on j.id = v.job;
end $$;

-- These agents have nothing to do with these jobs any more: their servers leave rehab. Returns those
-- whose rows are locked.
create function cnapi_end_push_rehab(p_servers uuid[], p_jobs uuid[]) returns setof uuid
language plpgsql volatile as $$
declare
  free uuid[];
begin
  free := array(
    select b.server_uuid from cnapi_push_busy b where b.server_uuid = any (p_servers)
      order by b.server_uuid for update skip locked);
  delete from cnapi_push_busy b
    using unnest(p_servers, p_jobs) as a (server_uuid, job)
    where b.server_uuid = a.server_uuid and b.job = a.job and b.rehab_since is not null
      and b.server_uuid = any (free);
  return query
    select b.server_uuid from cnapi_push_busy b
      join unnest(p_servers, p_jobs) as a (server_uuid, job) using (server_uuid, job)
      where b.rehab_since is not null and not b.server_uuid = any (free);
end $$;
