-- What the coordinator of a job does: the holder of its duty. Each function locks the duty first and
-- returns nothing if the caller does not hold it any more; then the job's row, which no vote is
-- being stored to; then nodes, servers in `cnapi_push_busy`, and tasks, in key order. It leaves out
-- nodes of which one of these rows is locked (law 9), and does at most p_most: a round counts what
-- is left, and the coordinator calls again.

-- Those of these servers whose rows in `cnapi_push_busy`, if this job has them, are locked now.
create function cnapi_lock_push_servers(p_job uuid, p_servers uuid[]) returns uuid[]
language plpgsql volatile as $$
declare
  free uuid[];
begin
  free := array(
    select b.server_uuid from cnapi_push_busy b
      where b.server_uuid = any (p_servers) and b.job = p_job
      order by b.server_uuid for update skip locked);
  return array(
    select unnest(p_servers) except (
      select b.server_uuid from cnapi_push_busy b
        where b.server_uuid = any (p_servers) and b.job = p_job
        except select unnest(free)));
end $$;

-- Their agents may still have something to do with the job: they are asked to forget it, until they
-- say that they have. The caller has locked their rows.
create function cnapi_begin_push_rehab(p_job uuid, p_servers uuid[]) returns void
language plpgsql volatile as $$
begin
  update cnapi_push_busy b set rehab_since = cnapi_now()
    where b.server_uuid = any (p_servers) and b.job = p_job and b.rehab_since is null;
end $$;

-- One round: gives nodes the ends of their tasks, finds those whose agents are gone, and counts.
-- `more`: there was more to do than p_most. `in_rehab`: how many servers are in rehab from now on.
-- `to_release`: nodes that take no part any more, because the job ends. `fed`: the number of new events
-- of the job's feed. p_cancelled and p_cancelled_uncertain: the errors of tasks that never ran.
--
-- When a command ends, its agent is idle. When its task ended without it (cancelled before it was
-- accepted, or given up), nobody knows what the agent does: rehab.
create function cnapi_advance_push_job(
  p_job uuid, p_run uuid, p_generation int, p_most int, p_cancelled json,
  p_cancelled_uncertain json
) returns table (
  state text, ending text, is_soft boolean, quorum int, abort_requested text, concurrency int,
  start_rate float8, max_failures int, voting_timeout_ms int, run_timeout_ms int,
  abort_timeout_ms int, age_ticks bigint, state_ticks bigint, started int, to_cancel int,
  to_abort int, to_release int, more boolean, in_rehab int, fed int,
  states text[], counts int[]
) language plpgsql volatile as $$
#variable_conflict use_column
declare
  job cnapi_push_jobs;
  moment timestamptz;
  picked uuid[];
  picked_tasks uuid[];
  locked_tasks uuid[];
  idle uuid[];
  unclear uuid[];
  is_more boolean := false;
  new_rehabs int := 0;
  new_events int := 0;
begin
  if not cnapi_lock_duty(p_job, p_run, p_generation) then
    return;
  end if;
  select * into job from cnapi_push_jobs j where j.id = p_job for update;
  if not found then
    -- It was deleted after its end, before its duty ended.
    job.state := 'ended';
  end if;
  moment := cnapi_now();
  if job.state <> 'ended' then
    picked := array(
      select n.server_uuid
        from cnapi_progress_of_tasks(array(
            select o.task from cnapi_push_nodes o
              where o.job = p_job and o.state in ('ready', 'running') and o.task is not null)) as t
        join cnapi_push_nodes n on n.job = p_job and n.task = t.id
        where n.state in ('ready', 'running')
          and (t.has_ended or t.has_started and n.state = 'ready')
        order by n.server_uuid limit p_most for update of n skip locked);
    is_more := cardinality(picked) = p_most;
    picked := cnapi_lock_push_servers(p_job, picked);
    with settled as (
      update cnapi_push_nodes n
        set state = case
              when not t.has_ended then 'running'
              when t.outcome = 'complete' then
                case when coalesce(t.exit_code, 0) = 0 then 'succeeded' else 'failed' end
              when t.error_code = 'TaskTimeout' then 'timed_out'
              when t.error_code in ('Aborted', 'Cancelled') then
                case when job.ending = 'timed_out' then 'timed_out'
                  when t.has_started or n.state = 'running' then 'aborted' else 'was_ready' end
              when t.error_code = 'AgentStopped' then 'aborted'
              when t.error_code in ('StartRefused', 'NotTaken', 'AgentPaused', 'AgentFull', 'UnknownTask')
                and n.state = 'ready' then 'unavailable'
              when t.error_code in ('TaskError', 'SpawnFailed', 'InvalidParameters') then 'failed'
              else 'crashed' end,
            reason = t.error_code, message = t.message, exit_code = t.exit_code,
            updated_at = moment
        from cnapi_progress_of_tasks(array(
            select o.task from cnapi_push_nodes o
              where o.job = p_job and o.server_uuid = any (picked))) as t
        where n.job = p_job and n.server_uuid = any (picked) and n.task = t.id
        returning n.server_uuid, t.has_ended, t.has_started, n.state
    )
    select coalesce(array_agg(s.server_uuid) filter (
          where s.has_ended and s.has_started and s.state <> 'crashed'), '{}'),
        coalesce(array_agg(s.server_uuid) filter (
          where s.has_ended and not (s.has_started and s.state <> 'crashed')), '{}')
      into idle, unclear from settled s;
    delete from cnapi_push_busy b where b.server_uuid = any (idle) and b.job = p_job;
    perform cnapi_begin_push_rehab(p_job, unclear);
    picked := array(
      select n.server_uuid
        from cnapi_presence(array(
            select o.server_uuid from cnapi_push_nodes o
              where o.job = p_job and o.state in ('ready', 'running'))) as p
        join cnapi_push_nodes n on n.job = p_job and n.server_uuid = p.server_uuid
        where n.state in ('ready', 'running') and p.incarnation is distinct from n.incarnation
        order by n.server_uuid limit p_most for update of n skip locked);
    is_more := is_more or cardinality(picked) = p_most;
    picked := cnapi_lock_push_servers(p_job, picked);
    picked_tasks := array(
      select n.task from cnapi_push_nodes n
        where n.job = p_job and n.server_uuid = any (picked) and n.task is not null);
    locked_tasks := cnapi_cancel_tasks(picked_tasks, p_cancelled, p_cancelled_uncertain);
    picked := array(
      select n.server_uuid from cnapi_push_nodes n
        where n.job = p_job and n.server_uuid = any (picked)
          and (n.task is null or not n.task = any (locked_tasks)));
    update cnapi_push_nodes n
      set state = case n.state when 'running' then 'crashed' else 'unavailable' end,
          reason = case when p.run is null then 'down' else 'restarted' end,
          updated_at = moment
      from cnapi_presence(picked) as p
      where n.job = p_job and n.server_uuid = any (picked) and n.server_uuid = p.server_uuid;
    perform cnapi_begin_push_rehab(p_job, picked);
    new_rehabs := cardinality(unclear) + cardinality(picked);
    new_events := cnapi_feed_push_job(p_job, null);
  end if;
  return query
    select job.state, job.ending, job.is_soft, job.quorum, job.abort_requested, job.concurrency,
        job.start_rate, job.max_failures, job.voting_timeout_ms, job.run_timeout_ms,
        job.abort_timeout_ms,
        cnapi_tick() - job.created_tick, cnapi_tick() - job.state_tick,
        coalesce(sum(c.started), 0)::int, coalesce(sum(c.to_cancel), 0)::int,
        coalesce(sum(c.to_abort), 0)::int, coalesce(sum(c.to_release), 0)::int, is_more, new_rehabs, new_events,
        coalesce(array_agg(c.state), '{}'),
        coalesce(array_agg(c.count), '{}')
      from (
        select n.state, count(*)::int as count,
            count(*) filter (where n.task is not null and n.state in ('ready', 'running'))::int
              as started,
            count(*) filter (where n.task is not null and n.state in ('ready', 'running')
              and n.reason is distinct from 'cancelled')::int as to_cancel,
            count(*) filter (where n.abort_requested is not null
              and (n.state = 'new' or n.state = 'ready' and n.task is null
                or n.abort_requested = 'hard' and n.state in ('ready', 'running')
                  and n.reason is distinct from 'cancelled'))::int as to_abort,
            count(*) filter (where job.state = 'aborting'
              and (n.state = 'new' or n.state = 'ready' and n.task is null))::int as to_release
          from cnapi_push_nodes n where n.job = p_job group by n.state
      ) as c;
end $$;

-- Starts ready nodes: each gets its task, at most as many as there are p_ids, and as the job's
-- concurrency allows. A voting job becomes `running`, if still enough nodes are ready. Returns the
-- servers to tell of their tasks, and the runs that act for them.
create function cnapi_start_push_nodes(
  p_job uuid, p_run uuid, p_generation int, p_ids uuid[], p_task text, p_timeout_ms int
) returns table (server_uuid uuid, run uuid) language plpgsql volatile as $$
#variable_conflict use_column
declare
  job cnapi_push_jobs;
  room int;
  picked uuid[];
begin
  if not cnapi_lock_duty(p_job, p_run, p_generation) then
    return;
  end if;
  select * into job from cnapi_push_jobs j where j.id = p_job for update;
  if job.state = 'voting' and job.abort_requested is null and job.quorum <= (
    select count(*) from cnapi_push_nodes n
      where n.job = p_job and n.state = 'ready' and n.abort_requested is null
  ) then
    update cnapi_push_jobs j
      set state = 'running', state_since = cnapi_now(), state_tick = cnapi_tick()
      where j.id = p_job;
  elsif job.state is distinct from 'running' or job.abort_requested is not null then
    return;
  end if;
  room := least(cardinality(p_ids), coalesce(job.concurrency, 2147483647) - (
    select count(*) from cnapi_push_nodes n
      where n.job = p_job and n.task is not null and n.state in ('ready', 'running')));
  picked := array(
    select n.server_uuid from cnapi_push_nodes n
      where n.job = p_job and n.state = 'ready' and n.task is null and n.abort_requested is null
      order by n.server_uuid limit greatest(room, 0) for update skip locked);
  if cardinality(picked) = 0 then
    return;
  end if;
  perform cnapi_create_tasks(p_ids[1:cardinality(picked)], picked, p_task,
    json_build_object('job', p_job), least(p_timeout_ms, job.node_timeout_ms), false, job.actor, left(job.command, 200));
  update cnapi_push_nodes n set task = t.id
    from unnest(p_ids[1:cardinality(picked)], picked) as t (id, server_uuid)
    where n.job = p_job and n.server_uuid = t.server_uuid;
  return query select p.server_uuid, p.run from cnapi_presence(picked) as p where p.run is not null;
end $$;

-- Nodes without a vote take no part any more. One that is ready all the same is told so when its
-- vote arrives.
create function cnapi_close_push_voting(p_job uuid, p_run uuid, p_generation int, p_most int)
returns boolean language plpgsql volatile as $$
declare
  picked uuid[];
begin
  if not cnapi_lock_duty(p_job, p_run, p_generation) then
    return false;
  end if;
  perform 1 from cnapi_push_jobs j where j.id = p_job for update;
  picked := array(
    select n.server_uuid from cnapi_push_nodes n where n.job = p_job and n.state = 'new'
      order by n.server_uuid limit p_most for update skip locked);
  update cnapi_push_nodes n
    set state = 'unavailable', reason = 'no-vote', updated_at = cnapi_now()
    where n.job = p_job and n.server_uuid = any (picked);
  return true;
end $$;

-- At most p_most nodes that have not started take no part any more: all, or those that a caller wants
-- to be aborted alone. p_ready: what becomes of those that had voted.
create function cnapi_release_push_nodes(
  p_job uuid, p_requested_only boolean, p_ready text, p_reason text, p_most int
) returns void language plpgsql volatile as $$
declare
  picked uuid[];
begin
  picked := array(
    select n.server_uuid from cnapi_push_nodes n
      where n.job = p_job and (n.state = 'new' or n.state = 'ready' and n.task is null)
        and (n.abort_requested is not null or not p_requested_only)
      order by n.server_uuid limit p_most for update skip locked);
  picked := cnapi_lock_push_servers(p_job, picked);
  update cnapi_push_nodes n
    set state = case n.state when 'new' then 'unavailable' else p_ready end, reason = p_reason,
        updated_at = cnapi_now()
    where n.job = p_job and n.server_uuid = any (picked);
  perform cnapi_begin_push_rehab(p_job, picked);
end $$;

-- Cancels the tasks of at most p_most of the job's nodes, or of those that a caller wants to be
-- aborted alone. Returns their servers.
create function cnapi_cancel_push_nodes(
  p_job uuid, p_requested_only boolean, p_most int, p_cancelled json, p_cancelled_uncertain json
) returns uuid[] language plpgsql volatile as $$
declare
  picked_tasks uuid[];
  cancelled uuid[];
begin
  picked_tasks := array(
    select n.task from cnapi_push_nodes n
      where n.job = p_job and n.state in ('ready', 'running') and n.task is not null
        and n.reason is distinct from 'cancelled'
        and (n.abort_requested = 'hard' or not p_requested_only)
      order by n.server_uuid limit p_most for update skip locked);
  picked_tasks := array(
    select unnest(picked_tasks)
      except select unnest(cnapi_cancel_tasks(picked_tasks, p_cancelled, p_cancelled_uncertain)));
  with marked as (
    update cnapi_push_nodes n set reason = 'cancelled'
      from unnest(picked_tasks) as c (task)
      where n.job = p_job and n.task = c.task
      returning n.server_uuid
  )
  select coalesce(array_agg(m.server_uuid), '{}') into cancelled from marked m;
  return cancelled;
end $$;

-- Aborts the nodes for which a caller asked that. Those that have not started take no part any more;
-- of the others at most p_most tasks are cancelled, unless their commands may end. Returns the
-- servers to tell of the cancels, and their runs.
create function cnapi_abort_push_nodes(
  p_job uuid, p_run uuid, p_generation int, p_most int,
  p_cancelled json, p_cancelled_uncertain json
) returns table (server_uuid uuid, run uuid) language plpgsql volatile as $$
#variable_conflict use_column
declare
  job cnapi_push_jobs;
  picked uuid[];
begin
  if not cnapi_lock_duty(p_job, p_run, p_generation) then
    return;
  end if;
  select * into job from cnapi_push_jobs j where j.id = p_job for update;
  if not found or job.state = 'ended' then
    return;
  end if;
  perform cnapi_release_push_nodes(p_job, true, 'was_ready', 'aborted', p_most);
  picked := cnapi_cancel_push_nodes(p_job, true, p_most, p_cancelled, p_cancelled_uncertain);
  return query select p.server_uuid, p.run from cnapi_presence(picked) as p;
end $$;

-- The job begins to end, or goes on to end: nothing more starts. Unless p_soft, cancels tasks. Returns the servers to tell of the cancels, and their runs.
create function cnapi_abort_push_job(
  p_job uuid, p_run uuid, p_generation int, p_ending text, p_soft boolean, p_reason text,
  p_most int, p_cancelled json, p_cancelled_uncertain json
) returns table (server_uuid uuid, run uuid) language plpgsql volatile as $$
#variable_conflict use_column
declare
  job cnapi_push_jobs;
  picked uuid[];
begin
  if not cnapi_lock_duty(p_job, p_run, p_generation) then
    return;
  end if;
  select * into job from cnapi_push_jobs j where j.id = p_job for update;
  if not found or job.state = 'ended' then
    return;
  end if;
  if job.state <> 'aborting' or job.is_soft and not p_soft then
    update cnapi_push_jobs j
      set state = 'aborting', ending = coalesce(j.ending, p_ending), is_soft = p_soft,
          reason = coalesce(j.reason, p_reason), state_since = cnapi_now(), state_tick = cnapi_tick()
      where j.id = p_job
      returning * into job;
  end if;
  perform cnapi_release_push_nodes(p_job, false,
    case job.ending when 'timed_out' then 'timed_out' else 'was_ready' end, 'job-ended', p_most);
  if p_soft then
    return;
  end if;
  picked := cnapi_cancel_push_nodes(p_job, false, p_most, p_cancelled, p_cancelled_uncertain);
  return query select p.server_uuid, p.run from cnapi_presence(picked) as p;
end $$;

-- The job ends. Nodes that have not ended are given up: their tasks are cancelled, their agents are
-- in rehab. Returns null if the caller does not hold the duty any more; otherwise how many nodes are
-- left: then the job has not ended. Only a job that is aborting gives nodes up: if it was to be
-- complete, they were added since they were counted.
create function cnapi_end_push_job(
  p_job uuid, p_run uuid, p_generation int, p_outcome text, p_most int,
  p_cancelled json, p_cancelled_uncertain json
) returns int language plpgsql volatile as $$
#variable_conflict use_column
declare
  given_up uuid[];
  locked_tasks uuid[];
  job_state text;
  unended int;
begin
  if not cnapi_lock_duty(p_job, p_run, p_generation) then
    return null;
  end if;
  select j.state into job_state from cnapi_push_jobs j where j.id = p_job for update;
  select count(*) into unended from cnapi_push_nodes n
    where n.job = p_job and n.state in ('new', 'ready', 'running');
  if job_state <> 'aborting' and unended > 0 then
    return unended;
  end if;
  given_up := array(
    select n.server_uuid from cnapi_push_nodes n
      where n.job = p_job and n.state in ('new', 'ready', 'running')
      order by n.server_uuid limit p_most for update skip locked);
  given_up := cnapi_lock_push_servers(p_job, given_up);
  locked_tasks := cnapi_cancel_tasks(array(
      select n.task from cnapi_push_nodes n
        where n.job = p_job and n.server_uuid = any (given_up) and n.task is not null),
    p_cancelled, p_cancelled_uncertain);
  given_up := array(
    select n.server_uuid from cnapi_push_nodes n
      where n.job = p_job and n.server_uuid = any (given_up)
        and (n.task is null or not n.task = any (locked_tasks)));
  update cnapi_push_nodes n
    set state = case when n.state = 'new' then 'unavailable'
          when p_outcome = 'timed_out' then 'timed_out'
          when n.state = 'running' then 'aborted' else 'was_ready' end,
        reason = 'given-up', updated_at = cnapi_now()
    where n.job = p_job and n.server_uuid = any (given_up);
  perform cnapi_begin_push_rehab(p_job, given_up);
  select count(*) into unended from cnapi_push_nodes n
    where n.job = p_job and n.state in ('new', 'ready', 'running');
  if unended > 0 then
    return unended;
  end if;
  update cnapi_push_jobs j
    set state = 'ended', outcome = p_outcome, state_since = cnapi_now(), state_tick = cnapi_tick()
    where j.id = p_job and j.state <> 'ended';
  if found then
    perform cnapi_feed_push_job(p_job, p_outcome);
  end if;
  return 0;
end $$;
