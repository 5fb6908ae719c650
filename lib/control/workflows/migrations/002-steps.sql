-- What the holder of a workflow job's duty writes. Each function locks the duty first, then the job's
-- row, and writes only if the job is still where the holder has read it.

-- The present step begins, with its task if it has one: the holder that finds it begun waits for
-- that task and starts no other. `is_begun` false: the job is elsewhere, or was canceled meanwhile.
-- `run`: the run that acts for the server; null: none at present, or the task is posted.
create function cnapi_begin_workflow_step(
  p_job uuid, p_run uuid, p_generation int, p_phase text, p_step int, p_tries int, p_facts jsonb,
  p_task uuid, p_task_name text, p_params json, p_masked_params json, p_timeout_ms int,
  p_idempotent boolean
) returns table (held boolean, is_begun boolean, run uuid) language plpgsql volatile as $$
#variable_conflict use_column
declare
  job cnapi_workflow_jobs;
  authority uuid;
begin
  if not cnapi_lock_duty(p_job, p_run, p_generation) then
    return query select false, false, null::uuid;
    return;
  end if;
  select * into job from cnapi_workflow_jobs j where j.id = p_job for update;
  if job.id is null or job.ended_at is not null or job.is_begun or job.phase <> p_phase
    or job.step <> p_step or job.tries <> p_tries
    or (job.phase = 'chain' and job.cancel_requested_at is not null)
  then
    return query select true, false, null::uuid;
    return;
  end if;
  if p_task is not null then
    authority := cnapi_create_task_of(p_task, job.server_uuid, p_task_name, p_params,
      p_masked_params, p_timeout_ms, p_idempotent, job.actor, job.name, job.req_id);
  end if;
  update cnapi_workflow_jobs j
    set is_begun = true, execution = 'running', task = p_task, facts = j.facts || p_facts,
        step_since = cnapi_now(), step_tick = cnapi_tick()
    where j.id = p_job;
  return query select true, true, authority;
end $$;

-- The job goes from one place to another, or ends (p_execution). p_entry: what became of the step
-- that it leaves; null: it had not begun.
create function cnapi_move_workflow_job(
  p_job uuid, p_run uuid, p_generation int, p_phase text, p_step int, p_tries int, p_entry jsonb,
  p_to_phase text, p_to_step int, p_to_tries int, p_ending text, p_begun_steps int,
  p_execution text
) returns table (held boolean, is_moved boolean) language plpgsql volatile as $$
declare
  job cnapi_workflow_jobs;
  moment timestamptz;
  entries jsonb := '[]';
begin
  if not cnapi_lock_duty(p_job, p_run, p_generation) then
    return query select false, false;
    return;
  end if;
  select * into job from cnapi_workflow_jobs j where j.id = p_job for update;
  if job.id is null or job.ended_at is not null or job.phase <> p_phase or job.step <> p_step
    or job.tries <> p_tries or job.is_begun <> (p_entry is not null)
    -- Canceled since the holder has read it: it does not go on in its chain.
    or (p_to_phase = 'chain' and p_execution = 'running' and job.cancel_requested_at is not null)
  then
    return query select true, false;
    return;
  end if;
  moment := cnapi_now();
  if p_entry is not null then
    entries := jsonb_build_array(p_entry || jsonb_build_object(
      'started_at', job.step_since, 'finished_at', moment, 'task', job.task));
  end if;
  update cnapi_workflow_jobs j
    set phase = p_to_phase, step = p_to_step, tries = p_to_tries, is_begun = false, task = null,
        ending = coalesce(p_ending, j.ending), begun_steps = coalesce(p_begun_steps, j.begun_steps),
        execution = p_execution,
        step_since = moment, step_tick = cnapi_tick(),
        ended_at = case when p_execution in ('succeeded', 'failed', 'canceled') then moment end,
        results = case job.phase when 'chain' then j.results || entries else j.results end,
        onerror_results = case job.phase
          when 'onerror' then j.onerror_results || entries else j.onerror_results end
    where j.id = p_job;
  return query select true, true;
end $$;
