-- Workflow jobs: work of several steps on one server (lib/control/workflows/workflow.ts draws the states).
--
-- vm_uuid          the VM that the job creates on that server; null for work on the server itself
-- chain, onerror   names of the steps, as the version that created the job has them
-- phase, step, tries, is_begun
--                  where the job is: the index of its present step, how often that has failed, and
--                  whether it has begun
-- ending, begun_steps
--                  in `onerror`: how the job ends, and how many steps of the chain had begun
-- task             that the present step has started
-- facts            what a step noted for later ones
-- results, onerror_results
--                  one entry for each end of a step: name, result, error, error_code, started_at, finished_at
-- masked_params    what everybody is shown instead of params that hold secrets; at the end of the
--                  job it replaces them
-- params_bytes     the size of the params that everybody is shown, so that lists need not read them to know it
-- step_tick        by the counter of deadlines, when the present step began
create table cnapi_workflow_jobs (
  id uuid not null,
  name text not null,
  server_uuid uuid not null,
  vm_uuid uuid,
  chain text[] not null,
  onerror text[] not null,
  params json not null,
  masked_params json,
  params_bytes int not null default 0,
  request_hash text not null,
  req_id text,
  actor text,
  execution text not null default 'queued'
    check (execution in ('queued', 'running', 'succeeded', 'failed', 'canceled')),
  phase text not null default 'chain' check (phase in ('chain', 'onerror')),
  step int not null default 0,
  tries int not null default 0,
  is_begun boolean not null default false,
  ending text check (ending in ('failed', 'canceled')),
  begun_steps int,
  task uuid,
  facts jsonb not null default '{}',
  results jsonb not null default '[]',
  onerror_results jsonb not null default '[]',
  cancel_requested_at timestamptz,
  cancel_actor text,
  created_at timestamptz not null default cnapi_now(),
  step_since timestamptz not null default cnapi_now(),
  step_tick bigint not null default cnapi_tick(),
  ended_at timestamptz,
  check ((execution in ('succeeded', 'failed', 'canceled')) = (ended_at is not null)),
  check ((phase = 'onerror') <= (ending is not null and begun_steps is not null)),
  check ((ending is null) = (begun_steps is null))
) with (fillfactor = 70);
-- A server has one unfinished job. (A reboot during a set-up would end in neither.) Those that create
-- VMs there are many, one for each VM.
create unique index cnapi_workflow_jobs_unfinished on cnapi_workflow_jobs (server_uuid)
  where ended_at is null and vm_uuid is null;
create unique index cnapi_workflow_jobs_unfinished_of_vm on cnapi_workflow_jobs (vm_uuid)
  where ended_at is null;
create index cnapi_workflow_jobs_of_vm on cnapi_workflow_jobs (vm_uuid, created_at desc)
  where vm_uuid is not null;
create index cnapi_workflow_jobs_created on cnapi_workflow_jobs (created_at desc, id desc);
create index cnapi_workflow_jobs_of_server on cnapi_workflow_jobs (server_uuid, created_at desc, id desc);
create index cnapi_workflow_jobs_ended on cnapi_workflow_jobs (ended_at) where ended_at is not null;
-- The last one: tasks/migrations/002-tasks.sql has the reason.
alter table cnapi_workflow_jobs add primary key (id);

-- An end is final, whichever statement writes.
create function cnapi_refuse_workflow_change() returns trigger language plpgsql as $$
begin
  raise exception 'workflow job % has ended as % and cannot become %', old.id, old.execution, new.execution;
end $$;

create trigger cnapi_workflow_guard before update on cnapi_workflow_jobs
  for each row when (old.ended_at is not null) execute function cnapi_refuse_workflow_change();

-- A job's secrets end with it.
create function cnapi_forget_workflow_secrets() returns trigger language plpgsql as $$
begin
  new.params := new.masked_params;
  return new;
end $$;

create trigger cnapi_workflow_secrets before update on cnapi_workflow_jobs
  for each row when (new.ended_at is not null and new.masked_params is not null)
  execute function cnapi_forget_workflow_secrets();

-- Each new step and each new execution of a job.
create function cnapi_log_workflow_event() returns trigger language plpgsql as $$
begin
  perform cnapi_add_event('workflow_job', new.server_uuid::text,
    coalesce(new.ended_at, new.step_since),
    jsonb_build_object('id', new.id, 'name', new.name, 'server_uuid', new.server_uuid,
      'execution', new.execution,
      'step', case when new.ended_at is null then
        case new.phase when 'chain' then new.chain[new.step + 1] else new.onerror[new.step + 1] end
      end, 'actor', new.actor));
  return null;
end $$;

create trigger cnapi_log_insert after insert on cnapi_workflow_jobs
  for each row execute function cnapi_log_workflow_event();

create trigger cnapi_log_update after update on cnapi_workflow_jobs
  for each row when (old.execution <> new.execution or old.phase <> new.phase or old.step <> new.step)
  execute function cnapi_log_workflow_event();
