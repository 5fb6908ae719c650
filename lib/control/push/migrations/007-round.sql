-- A round of the coordinator of a job (003-coordinate.sql): what has happened to its nodes, and how
-- many are in each state.

-- The functions of a round go from the nodes to the other rows by index, as 002-votes.sql does. With
-- statistics from before the votes, Postgres expected that one node is ready, and compared each of
-- 8,000 with the presence of all: 33 s for a round.

-- Locks at most p_most of these nodes that have not ended, in their order, with the servers' rows in
-- `cnapi_push_busy`, if this job has them, and, if p_with_tasks, with tasks that have not ended. Skips
-- nodes of which another session has locked a row.
create function cnapi_pick_push_nodes(
  p_job uuid, p_servers uuid[], p_with_tasks boolean, p_most int
) returns uuid[] language plpgsql volatile
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
begin
  return array(
    select s.server_uuid from unnest(p_servers) as s (server_uuid)
      cross join lateral (
        select n.task from cnapi_push_nodes n
          where n.job = p_job and n.server_uuid = s.server_uuid
            and n.state in ('new', 'ready', 'running')
          for update skip locked) as n
      left join lateral (
        select true as is_locked from cnapi_push_busy b
          where b.server_uuid = s.server_uuid and b.job = p_job
          for update skip locked) as b on true
      cross join lateral (
        select case
            when b.is_locked is null and exists (
              select 1 from cnapi_push_busy o
                where o.server_uuid = s.server_uuid and o.job = p_job) then false
            when p_with_tasks and n.task is not null then cnapi_lock_task(n.task)
            else true end as is_picked offset 0) as p
      where p.is_picked
      limit p_most);
end $$;

-- Gives nodes the ends of their tasks, or their starts. more: there was more to do than p_most.
-- in_rehab: how many servers are in rehab from now on. p_ends_of_cnapi: all errors with which cnapi
-- itself ends tasks.
--
-- When an agent reports the end of its command, it is idle. When its task ended without it
-- (cancelled before it was accepted, given up, or swept long after its timeout), nobody knows what
-- the agent does: rehab.
create function cnapi_settle_push_nodes(
  p_job uuid, p_ending text, p_most int, p_ends_of_cnapi text[], out more boolean, out in_rehab int
) language plpgsql volatile
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
  moment timestamptz := cnapi_now();
  due uuid[];
  picked uuid[];
  idle uuid[];
  unclear uuid[];
begin
  due := array(
    select o.server_uuid
      from (
        select n.server_uuid, n.state, n.task from cnapi_push_nodes n
          where n.job = p_job and n.state in ('ready', 'running') and n.task is not null
          order by n.server_uuid offset 0
      ) as o
      cross join lateral (
        select t.has_started, t.has_ended
          from cnapi_progress_of_task(o.task, p_ends_of_cnapi) as t offset 0) as t
      where t.has_ended or t.has_started and o.state = 'ready');
  picked := cnapi_pick_push_nodes(p_job, due, false, p_most);
  more := cardinality(picked) = p_most;
  in_rehab := 0;
  if cardinality(picked) = 0 then
    return;
  end if;
  with settled as (
    update cnapi_push_nodes n
      set state = cnapi_next_push_node(t.stage, t.event, p_ending = 'timed_out'),
          reason = cnapi_push_node_reason(t.event), message = t.message, exit_code = t.exit_code,
          updated_at = moment
      from (select p_job as job, u.* from unnest(picked) as u (server_uuid) offset 0) as p
        cross join lateral (
          select t.*,
              case when o.state = 'running' or t.has_started and t.has_ended then 'running'
                else 'starting' end as stage,
              cnapi_push_node_event(t.has_ended, t.outcome, t.exit_code, t.error_code) as event
            from cnapi_push_nodes o
            cross join lateral (
              select * from cnapi_progress_of_task(o.task, p_ends_of_cnapi) offset 0) as t
            where o.job = p.job and o.server_uuid = p.server_uuid offset 0) as t
      where n.job = any (array[p.job]) and n.server_uuid = any (array[p.server_uuid])
      returning n.server_uuid, t.has_ended,
        t.has_started and t.is_reported and n.state <> 'crashed' as is_idle
  )
  select coalesce(array_agg(s.server_uuid) filter (where s.has_ended and s.is_idle), '{}'),
      coalesce(array_agg(s.server_uuid) filter (where s.has_ended and not s.is_idle), '{}')
    into idle, unclear from settled s;
  delete from cnapi_push_busy b where b.server_uuid = any (idle) and b.job = p_job;
  perform cnapi_begin_push_rehab(p_job, unclear);
  in_rehab := cardinality(unclear);
end $$;

-- Nodes whose agents are gone leave the job, but for those whose tasks have ended: they get the
-- ends of their tasks, in a later round if there were too many for this one. more, in_rehab: as
-- above. p_cancelled and p_cancelled_uncertain: the errors of tasks that never ran.
create function cnapi_eject_push_nodes(
  p_job uuid, p_most int, p_cancelled json, p_cancelled_uncertain json, p_ends_of_cnapi text[],
  out more boolean, out in_rehab int
) language plpgsql volatile
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
  moment timestamptz := cnapi_now();
  gone uuid[];
  picked uuid[];
  locked_tasks uuid[];
begin
  gone := array(
    select l.server_uuid
      from (
        select o.server_uuid, o.task
          from (
            select n.server_uuid, n.incarnation, n.task from cnapi_push_nodes n
              where n.job = p_job and n.state in ('ready', 'running')
              order by n.server_uuid offset 0
          ) as o
          left join lateral (
            select p.incarnation from cnapi_presence_of(o.server_uuid) as p offset 0) as p on true
          where p.incarnation is distinct from o.incarnation offset 0
      ) as l
      where not exists (
        select 1 from cnapi_progress_of_task(l.task, p_ends_of_cnapi) as t where t.has_ended));
  picked := cnapi_pick_push_nodes(p_job, gone, true, p_most);
  more := cardinality(picked) = p_most;
  in_rehab := 0;
  if cardinality(picked) = 0 then
    return;
  end if;
  locked_tasks := cnapi_cancel_tasks(array(
      select n.task from cnapi_push_nodes n
        where n.job = p_job and n.server_uuid = any (picked) and n.task is not null),
    p_cancelled, p_cancelled_uncertain);
  -- A task may have ended since the nodes were picked.
  picked := array(
    select n.server_uuid from cnapi_push_nodes n
      where n.job = p_job and n.server_uuid = any (picked)
        and (n.task is null or not n.task = any (locked_tasks))
        and not exists (
          select 1 from cnapi_progress_of_task(n.task, p_ends_of_cnapi) as t
            where t.is_reported));
  more := more and cardinality(picked) > 0;
  update cnapi_push_nodes n
    set state = cnapi_next_push_node(n.state, p.event, false), reason = p.event,
        updated_at = moment
    from (
      -- An agent that has come back since it was missed, in the same process, was down.
      select p_job as job, p.server_uuid,
          case when p.run is null or p.incarnation = o.incarnation then 'down' else 'restarted' end
            as event
        from cnapi_presence(picked) as p
        cross join lateral (
          select n.incarnation from cnapi_push_nodes n
            where n.job = p_job and n.server_uuid = p.server_uuid offset 0) as o
        offset 0
    ) as p
    where n.job = any (array[p.job]) and n.server_uuid = any (array[p.server_uuid]);
  perform cnapi_begin_push_rehab(p_job, picked);
  in_rehab := cardinality(picked);
end $$;

-- One round. `more`: not everything was done yet. `to_release`: nodes that take no part any more,
-- because the job ends. `outdated_timeouts`: started nodes whose commands have another limit than
-- the job gives them now. `new_events`: the number of new events of the job's feed.
-- `start_bucket_full_in_ms`: until the token bucket of its start rate is full; negative: since it is.
create function cnapi_advance_push_job(
  p_job uuid, p_run uuid, p_generation int, p_most int, p_cancelled json,
  p_cancelled_uncertain json, p_ends_of_cnapi text[]
) returns table (
  state text, ending text, is_soft boolean, quorum int, abort_requested text,
  concurrency int, start_rate float8, max_failures int, voting_timeout_ms int, run_timeout_ms int,
  abort_timeout_ms int, start_bucket_full_in_ms float8, age_ticks bigint, state_ticks bigint, started int, to_cancel int,
  to_abort int, to_release int, outdated_timeouts int, more boolean, in_rehab int, new_events int,
  states text[], counts int[]
) language plpgsql volatile as $$
#variable_conflict use_column
declare
  job cnapi_push_jobs;
  is_more boolean := false;
  new_rehabs int := 0;
  events int := 0;
begin
  if not cnapi_lock_duty(p_job, p_run, p_generation) then
    return;
  end if;
  select * into job from cnapi_push_jobs j where j.id = p_job for update;
  if not found then
    -- It was deleted after its end, before its duty ended.
    job.state := 'ended';
  end if;
  if job.state <> 'ended' then
    select s.more, s.in_rehab into is_more, new_rehabs
      from cnapi_settle_push_nodes(p_job, job.ending, p_most, p_ends_of_cnapi) as s;
    select e.more or is_more, e.in_rehab + new_rehabs into is_more, new_rehabs
      from cnapi_eject_push_nodes(
        p_job, p_most, p_cancelled, p_cancelled_uncertain, p_ends_of_cnapi) as e;
    select f.more or is_more, f.new_events into is_more, events
      from cnapi_feed_push_job(p_job, null, p_most) as f;
  end if;
  return query
    select job.state, job.ending, job.is_soft, job.quorum, job.abort_requested,
        job.concurrency, job.start_rate, job.max_failures, job.voting_timeout_ms,
        job.run_timeout_ms, job.abort_timeout_ms,
        coalesce(extract(epoch from job.start_bucket_full_at - cnapi_now()) * 1000, 0)::float8,
        cnapi_tick() - job.created_tick, cnapi_tick() - job.state_tick,
        coalesce(sum(c.started), 0)::int, coalesce(sum(c.to_cancel), 0)::int,
        coalesce(sum(c.to_abort), 0)::int, coalesce(sum(c.to_release), 0)::int,
        coalesce(sum(c.outdated_timeouts), 0)::int, is_more, new_rehabs, events,
        coalesce(array_agg(c.state), '{}'),
        coalesce(array_agg(c.count), '{}')
      from (
        select n.state, count(*)::int as count,
            count(*) filter (where n.task is not null and n.state in ('ready', 'running'))::int
              as started,
            count(*) filter (where n.task is not null and n.state in ('ready', 'running')
              and not n.is_cancelled)::int as to_cancel,
            count(*) filter (where n.abort_requested is not null
              and (n.state = 'new' or n.state = 'ready' and n.task is null
                or n.abort_requested = 'hard' and n.state in ('ready', 'running')
                  and not n.is_cancelled))::int as to_abort,
            count(*) filter (where job.state = 'aborting'
              and (n.state = 'new' or n.state = 'ready' and n.task is null))::int as to_release,
            count(*) filter (where n.task is not null and n.state in ('ready', 'running')
              and not n.is_cancelled
              and n.timeout_ms
                <> cnapi_push_timeout(job.run_timeout_ms, job.node_timeout_ms, n.run_ms))::int
              as outdated_timeouts
          from cnapi_push_nodes n where n.job = p_job group by n.state
      ) as c;
end $$;
