-- Runs of noderoles, begun and ended by the holder of the annealer's duty.

-- Begins runs of noderoles that are due, first tries before others, the lowest cohorts first: at most
-- p_cap at a time in all, at most as many as p_ids now, and one for each server, which must run.
-- p_roles: the roles whose jigs are active, with their retries and pauses. `held` false: the duty has
-- another holder.
create function cnapi_claim_noderoles(
  p_duty uuid, p_run uuid, p_generation int, p_ids uuid[], p_cap int,
  p_roles text[], p_max_failures int[], p_retry_ticks bigint[]
) returns table (held boolean, noderole_run uuid, noderole uuid) language plpgsql volatile as $$
#variable_conflict use_column
declare
  room int;
  picked uuid[];
  tick bigint := cnapi_tick();
begin
  if not cnapi_lock_duty(p_duty, p_run, p_generation) then
    return query select false, null::uuid, null::uuid;
    return;
  end if;
  -- A holder whose answer was lost repeats its claim, maybe while the first one still runs. The
  -- second one counts after the first.
  perform pg_advisory_xact_lock(hashtextextended('cnapi noderole claims', 0));
  room := least(cardinality(p_ids),
    p_cap - (select count(*)::int from cnapi_noderole_runs r where r.ended_at is null));
  -- The first due one of each server. Locked ones are left for the next round.
  picked := array(
    select n.id from cnapi_noderoles n
      where n.id in (
        select distinct on (d.server_uuid) d.id from cnapi_noderoles d
          where d.state = 'todo' and d.due_tick <= tick and d.role = any (p_roles)
            and not exists (
              select 1 from cnapi_noderole_runs r where r.server_uuid = d.server_uuid and r.ended_at is null)
            and exists (select 1 from cnapi_presence_of(d.server_uuid) p where p.run is not null)
          order by d.server_uuid, d.failures > 0, d.cohort, d.id)
      and n.state = 'todo'
      order by n.failures > 0, n.cohort, n.id limit greatest(room, 0) for no key update skip locked);
  return query with begun as (
    insert into cnapi_noderole_runs (id, noderole, server_uuid, max_failures, retry_ticks)
      select i.id, n.id, n.server_uuid, o.max_failures, o.retry_ticks
        from unnest(picked) with ordinality as c (id, place)
        join unnest(p_ids) with ordinality as i (id, place) on i.place = c.place
        join cnapi_noderoles n on n.id = c.id
        join unnest(p_roles, p_max_failures, p_retry_ticks) as o (role, max_failures, retry_ticks)
          on o.role = n.role
      returning id, noderole
  ), moved as (
    update cnapi_noderoles n
      set state = cnapi_next_noderole(n.state, 'claim', 'active'), noderole_run = b.id, state_since = cnapi_now()
      from begun b where n.id = b.noderole
      returning n.id, n.noderole_run
  ) select true, m.noderole_run, m.id from moved m;
end $$;

-- Gives runs their tasks and keeps what is sent to them. Skips runs that have a task already, and
-- abandoned ones, which end. Returns the runs of instances that act for the servers.
create function cnapi_begin_noderole_tasks(
  p_duty uuid, p_run uuid, p_generation int, p_runs uuid[], p_tasks uuid[], p_inputs jsonb[],
  p_params json[], p_masked_params json[], p_timeouts_ms int[]
) returns table (held boolean, server_uuid uuid, instance_run uuid) language plpgsql volatile as $$
#variable_conflict use_column
declare
  one record;
begin
  if not cnapi_lock_duty(p_duty, p_run, p_generation) then
    return query select false, null::uuid, null::uuid;
    return;
  end if;
  -- Runs are locked before noderoles, as at their end.
  perform 1 from cnapi_noderole_runs r where r.id = any (p_runs) order by r.id for update;
  for one in
    select r.id, r.server_uuid, n.actor, n.role, b.task, b.inputs, b.params, b.masked_params, b.timeout_ms
      from unnest(p_runs, p_tasks, p_inputs, p_params, p_masked_params, p_timeouts_ms)
        as b (id, task, inputs, params, masked_params, timeout_ms)
      join cnapi_noderole_runs r on r.id = b.id and r.ended_at is null and r.task is null
      join cnapi_noderoles n on n.noderole_run = r.id
      order by r.id
  loop
    update cnapi_noderole_runs r set task = one.task, inputs = one.inputs where r.id = one.id;
    return query select true, one.server_uuid, cnapi_create_task_of(one.task, one.server_uuid,
      'command_execute', one.params, one.masked_params, one.timeout_ms, false, one.actor,
      'role ' || one.role, null);
  end loop;
end $$;

-- Ends runs. p_walls: null for a run that failed. A run that its noderole has abandoned, because
-- that was proposed again, ends and changes nothing else.
create function cnapi_end_noderole_runs(
  p_duty uuid, p_run uuid, p_generation int, p_runs uuid[], p_outcomes text[], p_walls jsonb[], p_errors json[]
) returns boolean language plpgsql volatile as $$
declare
  ended uuid[];
begin
  if not cnapi_lock_duty(p_duty, p_run, p_generation) then
    return false;
  end if;
  perform 1 from cnapi_noderole_runs r where r.id = any (p_runs) order by r.id for update;
  with run_end as (
    update cnapi_noderole_runs r
      set ended_at = cnapi_now(), inputs = null, wall = e.wall, error = e.error,
        outcome = e.outcome
      from unnest(p_runs, p_outcomes, p_walls, p_errors) as e (id, outcome, wall, error)
      where r.id = e.id and r.ended_at is null
      returning r.noderole
  ) select array_agg(e.noderole) into ended from run_end e;
  perform cnapi_step_noderoles(ended, array(select 'ended' from unnest(ended)));
  return true;
end $$;
