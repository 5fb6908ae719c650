-- What the coordinator of a job does: the holder of its duty. Each function locks the duty first
-- and returns nothing if the caller does not hold it any more; then the job's row, which no vote is
-- being stored to; then nodes, servers in `cnapi_push_busy`, and tasks, in key order. It leaves out
-- nodes of which one of these rows is locked (law 9), and does at most p_most of the others: a round
-- counts what is left, and the coordinator calls again.
--
-- A caller that was told that its change was made must see it take effect, so a step that depends
-- on what callers change decides again by the locked row. It does not ask whether the row was
-- changed: a caller that changes the job again and again would hold it up.

-- The job's row, locked. None if the caller does not hold the duty any more, or if the job was
-- deleted.
create function cnapi_lock_push_job(p_job uuid, p_run uuid, p_generation int)
returns setof cnapi_push_jobs language plpgsql volatile as $$
begin
  if cnapi_lock_duty(p_job, p_run, p_generation) then
    return query select * from cnapi_push_jobs j where j.id = p_job for update;
  end if;
end $$;

-- Puts these servers into rehab, because their agents may still take part in the job: they are
-- asked to forget it until they answer. The caller has locked the servers' rows.
create function cnapi_begin_push_rehab(p_job uuid, p_servers uuid[]) returns void
language plpgsql volatile as $$
begin
  update cnapi_push_busy b set rehab_since = cnapi_now()
    where b.server_uuid = any (p_servers) and b.job = p_job and b.rehab_since is null;
end $$;

-- How many nodes of a job have failed: FAILURES in lib/control/push/push-job.ts.
create function cnapi_count_push_failures(p_job uuid) returns int language sql volatile as $$
  select count(*)::int from cnapi_push_nodes n
    where n.job = p_job and n.state in ('failed', 'crashed', 'timed_out')
$$;

-- Starts ready nodes: each gets its task, at most as many as there are p_ids, and as the job's
-- concurrency, its start rate, its run timeout and its failures allow now. p_run_ms: for how long the
-- job has run. p_refill_ms: in how many ms the token bucket of the start rate is full again. A voting
-- job becomes `running`, if still enough nodes are ready.
-- Returns the servers to notify of their tasks, and the runs that act for them; null: none at
-- present.
create function cnapi_start_push_nodes(
  p_job uuid, p_run uuid, p_generation int, p_ids uuid[], p_task text, p_run_ms int,
  p_refill_ms float8
) returns table (server_uuid uuid, task uuid, run uuid) language plpgsql volatile as $$
#variable_conflict use_column
declare
  job cnapi_push_jobs;
  room int;
  picked uuid[];
  limit_ms int;
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
  elsif job.state is distinct from 'running' or job.abort_requested is not null
    or p_run_ms >= job.run_timeout_ms or cnapi_count_push_failures(p_job) > job.max_failures
  then
    return;
  end if;
  room := least(cardinality(p_ids), coalesce(job.concurrency, 2147483647) - (
    select count(*) from cnapi_push_nodes n
      where n.job = p_job and n.task is not null and n.state in ('ready', 'running')));
  if job.start_rate is not null then
    -- mayStart in lib/control/push/push-job.ts has the same limit, and rounds by as much.
    room := least(room, greatest(0, floor(greatest(1, job.start_rate / 10)
      - greatest(0, p_refill_ms - 0.001) / 1000 * job.start_rate + 1e-6)))::int;
  end if;
  picked := array(
    select n.server_uuid from cnapi_push_nodes n
      where n.job = p_job and n.state = 'ready' and n.task is null and n.abort_requested is null
      order by n.server_uuid limit greatest(room, 0) for update skip locked);
  if cardinality(picked) = 0 then
    return;
  end if;
  limit_ms := cnapi_push_timeout(job.run_timeout_ms, job.node_timeout_ms, p_run_ms);
  perform cnapi_create_tasks(p_ids[1:cardinality(picked)], picked, p_task,
    json_build_object('job', p_job), limit_ms, false, job.actor, left(job.command, 200));
  update cnapi_push_nodes n set task = t.id, run_ms = p_run_ms, timeout_ms = limit_ms
    from unnest(p_ids[1:cardinality(picked)], picked) as t (id, server_uuid)
    where n.job = p_job and n.server_uuid = t.server_uuid;
  if job.start_rate is not null then
    update cnapi_push_jobs j
      set start_bucket_full_at = cnapi_now() + make_interval(
        secs => p_refill_ms / 1000 + cardinality(picked) / job.start_rate)
      where j.id = p_job;
  end if;
  return query
    select t.server_uuid, t.id, p.run
      from unnest(p_ids[1:cardinality(picked)], picked) as t (id, server_uuid)
      left join cnapi_presence(picked) as p on p.server_uuid = t.server_uuid;
end $$;

-- Commands that were started get the limit that the job's run timeout, which was changed, gives
-- them now: at most p_most of them. The instances that have their agents' sessions tell them.
create function cnapi_change_push_timeouts(
  p_job uuid, p_run uuid, p_generation int, p_most int
) returns boolean language plpgsql volatile as $$
declare
  job cnapi_push_jobs;
  picked uuid[];
  picked_tasks uuid[];
  limits_ms int[];
  locked_tasks uuid[];
begin
  if not cnapi_lock_duty(p_job, p_run, p_generation) then
    return false;
  end if;
  select * into job from cnapi_push_jobs j where j.id = p_job for update;
  picked := array(
    select w.server_uuid
      from (
        select n.server_uuid, n.task from cnapi_push_nodes n
          where n.job = p_job and n.task is not null and n.state in ('ready', 'running')
            and n.timeout_ms
              <> cnapi_push_timeout(job.run_timeout_ms, job.node_timeout_ms, n.run_ms)
          order by n.server_uuid for update skip locked
      ) as w
      cross join lateral (select cnapi_lock_task(w.task) as is_locked offset 0) as t
      where t.is_locked limit p_most);
  select array_agg(n.task),
      array_agg(cnapi_push_timeout(job.run_timeout_ms, job.node_timeout_ms, n.run_ms))
    into picked_tasks, limits_ms
    from cnapi_push_nodes n where n.job = p_job and n.server_uuid = any (picked);
  locked_tasks := cnapi_change_timeouts(picked_tasks, limits_ms);
  update cnapi_push_nodes n
    set timeout_ms = cnapi_push_timeout(job.run_timeout_ms, job.node_timeout_ms, n.run_ms),
        timeout_change = job.timeout_changes + 1
    where n.job = p_job and n.server_uuid = any (picked) and not n.task = any (locked_tasks);
  if found then
    update cnapi_push_jobs j set timeout_changes = j.timeout_changes + 1 where j.id = p_job;
  end if;
  return true;
end $$;

-- Nodes without a vote no longer take part, if the voting timeout is over. An agent whose vote
-- arrives later is told so. p_age_ms: for how long the job has asked.
create function cnapi_close_push_voting(
  p_job uuid, p_run uuid, p_generation int, p_age_ms float8, p_most int
) returns boolean language plpgsql volatile as $$
declare
  picked uuid[];
begin
  if not cnapi_lock_duty(p_job, p_run, p_generation) then
    return false;
  end if;
  perform 1 from cnapi_push_jobs j where j.id = p_job and j.voting_timeout_ms <= p_age_ms for update;
  if not found then
    return true;
  end if;
  picked := array(
    select n.server_uuid from cnapi_push_nodes n where n.job = p_job and n.state = 'new'
      order by n.server_uuid limit p_most for update skip locked);
  update cnapi_push_nodes n
    set state = cnapi_next_push_node(n.state, 'no-vote', false), reason = 'no-vote',
        updated_at = cnapi_now()
    where n.job = p_job and n.server_uuid = any (picked);
  return true;
end $$;

-- Releases at most p_most nodes that have not started: of all nodes, or of those that a caller
-- wants to abort alone. p_event, p_is_late: as in cnapi_next_push_node.
create function cnapi_release_push_nodes(
  p_job uuid, p_requested_only boolean, p_event text, p_is_late boolean, p_most int
) returns void language plpgsql volatile as $$
declare
  picked uuid[];
begin
  picked := array(
    select n.server_uuid from cnapi_push_nodes n
      where n.job = p_job and (n.state = 'new' or n.state = 'ready' and n.task is null)
        and (n.abort_requested is not null or not p_requested_only)
      order by n.server_uuid);
  picked := cnapi_pick_push_nodes(p_job, picked, false, p_most);
  update cnapi_push_nodes n
    set state = cnapi_next_push_node(n.state, p_event, p_is_late), reason = p_event,
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
    select w.task
      from (
        select n.task from cnapi_push_nodes n
          where n.job = p_job and n.state in ('ready', 'running') and n.task is not null
            and not n.is_cancelled
            and (n.abort_requested = 'hard' or not p_requested_only)
          order by n.server_uuid for update skip locked
      ) as w
      cross join lateral (select cnapi_lock_task(w.task) as is_locked offset 0) as t
      where t.is_locked limit p_most);
  picked_tasks := array(
    select unnest(picked_tasks)
      except select unnest(cnapi_cancel_tasks(picked_tasks, p_cancelled, p_cancelled_uncertain)));
  with marked as (
    update cnapi_push_nodes n set is_cancelled = true
      from unnest(picked_tasks) as c (task)
      where n.job = p_job and n.task = c.task
      returning n.server_uuid
  )
  select coalesce(array_agg(m.server_uuid), '{}') into cancelled from marked m;
  return cancelled;
end $$;

-- Aborts the nodes for which a caller asked that. Those that have not started take no part any
-- more; of the others at most p_most tasks are cancelled, unless their commands may end. Returns
-- the servers to notify of the cancels, and their runs.
create function cnapi_abort_push_nodes(
  p_job uuid, p_run uuid, p_generation int, p_most int,
  p_cancelled json, p_cancelled_uncertain json
) returns table (server_uuid uuid, run uuid) language plpgsql volatile as $$
#variable_conflict use_column
declare
  job cnapi_push_jobs;
  picked uuid[];
begin
  select * into job from cnapi_lock_push_job(p_job, p_run, p_generation);
  if not found or job.state = 'ended' then
    return;
  end if;
  perform cnapi_release_push_nodes(p_job, true, 'node-aborted', false, p_most);
  picked := cnapi_cancel_push_nodes(p_job, true, p_most, p_cancelled, p_cancelled_uncertain);
  return query select p.server_uuid, p.run from cnapi_presence(picked) as p;
end $$;

-- Whether the job is still to be aborted for this cause (AbortCause in lib/control/push/push-job.ts):
--
--     no-quorum      too few of its nodes are ready or may become so
--     voting-timeout too few of its nodes were ready in time
--     run-timeout    it has run for too long
--     failures       too many of its nodes have failed
--
-- Callers change the limits and add nodes. p_age_ms: for how long the job has asked; p_state_ms: for
-- how long it has been in its state.
create function cnapi_is_push_abort_due(
  p_job cnapi_push_jobs, p_cause text, p_age_ms float8, p_state_ms float8
) returns boolean language plpgsql volatile as $$
declare
  quorum int := greatest(1, p_job.quorum);
begin
  case p_cause
    when 'no-quorum' then
      return quorum > (select count(*) from cnapi_push_nodes n
        where n.job = p_job.id and n.state in ('new', 'ready'));
    when 'voting-timeout' then
      return p_age_ms >= p_job.voting_timeout_ms and quorum > (
        select count(*) from cnapi_push_nodes n
          where n.job = p_job.id and n.state = 'ready' and n.abort_requested is null);
    when 'run-timeout' then
      return p_state_ms >= p_job.run_timeout_ms;
    when 'failures' then
      return coalesce(cnapi_count_push_failures(p_job.id) > p_job.max_failures, false);
  end case;
end $$;

-- Begins or continues to abort the job: nothing more starts. Unless p_soft, cancels tasks. Returns
-- the servers to notify of the cancels, and their runs. p_cause: null if no caller can take it away;
-- p_age_ms and p_state_ms as above.
create function cnapi_abort_push_job(
  p_job uuid, p_run uuid, p_generation int, p_cause text, p_age_ms float8, p_state_ms float8,
  p_ending text, p_soft boolean, p_reason text, p_most int, p_cancelled json,
  p_cancelled_uncertain json
) returns table (server_uuid uuid, run uuid) language plpgsql volatile as $$
#variable_conflict use_column
declare
  job cnapi_push_jobs;
  picked uuid[];
begin
  select * into job from cnapi_lock_push_job(p_job, p_run, p_generation);
  if not found or job.state = 'ended' then
    return;
  end if;
  if p_cause is not null and not cnapi_is_push_abort_due(job, p_cause, p_age_ms, p_state_ms) then
    return;
  end if;
  if job.state <> 'aborting' or job.is_soft and not p_soft then
    update cnapi_push_jobs j
      set state = 'aborting', ending = coalesce(j.ending, p_ending), is_soft = p_soft,
          reason = coalesce(j.reason, p_reason), state_since = cnapi_now(), state_tick = cnapi_tick()
      where j.id = p_job
      returning * into job;
  end if;
  perform cnapi_release_push_nodes(
    p_job, false, 'job-ended', job.ending = 'timed_out', p_most);
  if p_soft then
    return;
  end if;
  picked := cnapi_cancel_push_nodes(p_job, false, p_most, p_cancelled, p_cancelled_uncertain);
  return query select p.server_uuid, p.run from cnapi_presence(picked) as p;
end $$;

-- Ends the job. Nodes that have not ended are given up: their tasks are cancelled, and their
-- servers are in rehab. Returns null if the caller does not hold the duty any more; otherwise how
-- many nodes are left, or whose ends the feed has not told yet: then the job has not ended. Only a
-- job that is aborting gives nodes up: if it was to be complete, they were added since they were
-- counted.
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
    where n.job = p_job and cnapi_is_push_node_open(n.state);
  if job_state <> 'aborting' and unended > 0 then
    return unended;
  end if;
  given_up := array(
    select n.server_uuid from cnapi_push_nodes n
      where n.job = p_job and cnapi_is_push_node_open(n.state) order by n.server_uuid);
  given_up := cnapi_pick_push_nodes(p_job, given_up, true, p_most);
  locked_tasks := cnapi_cancel_tasks(array(
      select n.task from cnapi_push_nodes n
        where n.job = p_job and n.server_uuid = any (given_up) and n.task is not null),
    p_cancelled, p_cancelled_uncertain);
  given_up := array(
    select n.server_uuid from cnapi_push_nodes n
      where n.job = p_job and n.server_uuid = any (given_up)
        and (n.task is null or not n.task = any (locked_tasks)));
  update cnapi_push_nodes n
    set state = cnapi_next_push_node(n.state, 'given-up', p_outcome = 'timed_out'),
        reason = 'given-up', updated_at = cnapi_now()
    where n.job = p_job and n.server_uuid = any (given_up);
  perform cnapi_begin_push_rehab(p_job, given_up);
  select count(*) into unended from cnapi_push_nodes n
    where n.job = p_job and cnapi_is_push_node_open(n.state);
  if unended > 0 then
    return unended;
  end if;
  perform cnapi_feed_push_job(p_job, null, p_most);
  select count(*) into unended from cnapi_push_nodes n
    join cnapi_push_jobs j on j.id = n.job and j.organization is not null
    where n.job = p_job and n.feed_state <> n.state;
  if unended > 0 then
    return unended;
  end if;
  update cnapi_push_jobs j
    set state = 'ended', outcome = p_outcome, counts = cnapi_count_push_nodes(p_job),
        state_since = cnapi_now(), state_tick = cnapi_tick()
    where j.id = p_job and j.state <> 'ended';
  if found then
    perform cnapi_feed_push_job(p_job, p_outcome, p_most);
  end if;
  return 0;
end $$;
