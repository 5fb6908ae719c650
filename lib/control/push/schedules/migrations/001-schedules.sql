-- Schedules: push jobs that are created at a time, or at the times of a cron expression
-- (lib/control/push/schedules/schedule.ts).
--
-- job         the body of POST /push-jobs, as the caller wrote it
-- job_bytes   the length of its text
-- actor       who created it
-- job_actor   who created it or was the last to change job: its jobs start in this name
-- next_at     the next time; null: there is none
-- queued_at   the time of a firing that waits until the last job has ended
-- last_at, last_outcome, last_reason
--             the last time, or when a caller ran it, and what came of it, in words that everybody may
--             see
-- last_message
--             more about it; it may repeat parts of the job
-- last_job    the last job that it created
-- fired       how many jobs it has created
-- held_until  an instance tries to use its time up: others leave it alone until then
-- tries       how often one tried, for the present time
-- failure_reason, failure_message
--             why the last try failed, if it had to wait for the end of other jobs
-- changes     how often callers have changed its times, its overlap or its job
-- changed_by, changed_at
--             who did so last, or paused or resumed it, and when
create table cnapi_push_schedules (
  id uuid not null,
  at timestamptz,
  cron text collate "C",
  time_zone text collate "C" not null,
  overlap text not null check (overlap in ('skip', 'queue', 'allow')),
  job json not null,
  job_bytes int not null,
  actor text,
  job_actor text,
  is_paused boolean not null default false,
  next_at timestamptz,
  queued_at timestamptz,
  last_at timestamptz,
  last_outcome text check (last_outcome in ('started', 'skipped', 'missed', 'refused')),
  last_reason text,
  last_message text,
  last_job uuid,
  fired int not null default 0,
  held_until timestamptz,
  tries int not null default 0,
  failure_reason text,
  failure_message text,
  changes int not null default 0,
  changed_by text,
  changed_at timestamptz,
  created_at timestamptz not null default cnapi_now(),
  updated_at timestamptz not null default cnapi_now(),
  check ((at is null) <> (cron is null))
) with (fillfactor = 50);
create index cnapi_push_schedules_next on cnapi_push_schedules (least(next_at, queued_at))
  where not is_paused and least(next_at, queued_at) is not null;
create index cnapi_push_schedules_created on cnapi_push_schedules (created_at desc, id);
-- The last one: tasks/migrations/002-tasks.sql has the reason.
alter table cnapi_push_schedules add primary key (id);

-- The jobs of a schedule: one for each time, whichever instances try. number: of the schedule's
-- jobs, in the order in which they were created. at: null if a caller ran the schedule beside its
-- times.
create table cnapi_push_firings (
  schedule uuid not null,
  number int not null,
  at timestamptz,
  job uuid not null unique references cnapi_push_jobs on delete cascade deferrable initially deferred
);
create unique index cnapi_push_firings_at on cnapi_push_firings (schedule, at);
alter table cnapi_push_firings add primary key (schedule, number);

-- The time by which schedules fire: the earlier one of the database's clock and that of the
-- instance that asks. So nothing fires early because one of them is wrong.
create function cnapi_schedule_time(p_instance_time timestamptz) returns timestamptz
language sql stable as $$
  select least(cnapi_now(), p_instance_time)
$$;

-- Whether an instance holds the schedule to use up its time. A time far ahead does not count: it was
-- stored before the database's clock was set back.
create function cnapi_is_held_push_schedule(p_held_until timestamptz, p_moment timestamptz)
returns boolean language sql immutable as $$
  select p_held_until > p_moment and p_held_until <= p_moment + interval '60 seconds'
$$;

-- Schedules whose time has come, the longest first, for the instance that asks: only this one has
-- the work of finding the servers and creating the job. It has ten seconds, and twice as many with
-- each try, up to a minute. If it dies or fails, another one tries after that. This saves work and
-- does not protect anything: cnapi_lock_push_schedule does.
create function cnapi_claim_due_push_schedules(p_instance_time timestamptz, p_most int)
returns setof uuid language plpgsql volatile as $$
declare
  moment timestamptz := cnapi_schedule_time(p_instance_time);
  present timestamptz := cnapi_now();
begin
  return query
    update cnapi_push_schedules s
      set held_until = present + least(60, 10 * 2 ^ s.tries) * interval '1 second',
        tries = least(s.tries + 1, 10)
      where s.id = any (array(
        select d.id from cnapi_push_schedules d left join cnapi_push_jobs j on j.id = d.last_job
          where not d.is_paused and least(d.next_at, d.queued_at) <= moment
            and (d.next_at <= moment or coalesce(j.state, 'ended') = 'ended')
            and cnapi_is_held_push_schedule(d.held_until, present) is not true
          order by least(d.next_at, d.queued_at), d.id limit p_most
          for update of d skip locked))
      returning s.id;
end $$;

-- Creates a schedule. Returns false if p_most schedules may still fire already.
create function cnapi_create_push_schedule(
  p_id uuid, p_at timestamptz, p_cron text, p_time_zone text, p_overlap text, p_job json,
  p_actor text, p_next_at timestamptz, p_most int
) returns boolean language plpgsql volatile as $$
begin
  perform pg_advisory_xact_lock(hashtextextended('cnapi_push_schedules', 0));
  if p_most <= (select count(*) from cnapi_push_schedules s
      where s.next_at is not null or s.queued_at is not null) then
    return false;
  end if;
  insert into cnapi_push_schedules (id, at, cron, time_zone, overlap, job, job_bytes, actor, job_actor,
      next_at)
    values (p_id, p_at, p_cron, p_time_zone, p_overlap, p_job, octet_length(p_job::text), p_actor,
      p_actor, p_next_at);
  return true;
end $$;

-- Locks the schedule, and says whether it is as the caller has read it.
create function cnapi_lock_push_schedule(
  p_id uuid, p_changes int, p_next_at timestamptz, p_queued_at timestamptz
) returns boolean language plpgsql volatile as $$
begin
  perform 1 from cnapi_push_schedules s
    where s.id = p_id and not s.is_paused and s.next_at is not distinct from p_next_at
      and s.queued_at is not distinct from p_queued_at and s.changes = p_changes
    for update;
  return found;
end $$;

-- Whether its last job, which has not ended, prevents another one. Ask after the lock of its row.
create function cnapi_is_busy_push_schedule(p_id uuid) returns boolean
language sql stable as $$
  select exists (
    select 1 from cnapi_push_schedules s join cnapi_push_jobs j on j.id = s.last_job
      where s.id = p_id and s.overlap <> 'allow' and j.state <> 'ended')
$$;

-- The time p_at is used up for the job p_job, which the caller creates in the same statement if the
-- answer is true. p_changes, p_next_at and p_queued_at: as the caller has read them; p_then_at: the
-- next time. False: another instance was first, the schedule was changed, its last job has not
-- ended, or the time was used up before: a schedule may be resumed by an instance whose clock is
-- behind.
create function cnapi_fire_push_schedule(
  p_id uuid, p_changes int, p_next_at timestamptz, p_queued_at timestamptz, p_at timestamptz,
  p_then_at timestamptz, p_job uuid
) returns boolean language plpgsql volatile as $$
begin
  if not cnapi_lock_push_schedule(p_id, p_changes, p_next_at, p_queued_at) then
    return false;
  end if;
  if cnapi_is_busy_push_schedule(p_id) then
    return false;
  end if;
  insert into cnapi_push_firings (schedule, number, at, job)
    select s.id, s.fired + 1, p_at, p_job from cnapi_push_schedules s where s.id = p_id
    on conflict do nothing;
  if not found then
    update cnapi_push_schedules s
      set next_at = p_then_at, queued_at = null, held_until = null, tries = 0,
        failure_reason = null, failure_message = null, updated_at = cnapi_now()
      where s.id = p_id;
    return false;
  end if;
  update cnapi_push_schedules s
    set next_at = p_then_at, queued_at = null, last_at = p_at, last_outcome = 'started',
      last_reason = null, last_message = null, last_job = p_job, fired = s.fired + 1,
      held_until = null, tries = 0, failure_reason = null, failure_message = null,
      updated_at = cnapi_now()
    where s.id = p_id;
  return true;
end $$;

-- The time p_at is used up without a job, or put into the queue (p_queue_at). False: another
-- instance was first, or the schedule was changed.
create function cnapi_pass_push_schedule(
  p_id uuid, p_changes int, p_next_at timestamptz, p_queued_at timestamptz, p_at timestamptz,
  p_then_at timestamptz, p_queue_at timestamptz, p_outcome text, p_reason text, p_message text
) returns boolean language plpgsql volatile as $$
begin
  if not cnapi_lock_push_schedule(p_id, p_changes, p_next_at, p_queued_at) then
    return false;
  end if;
  update cnapi_push_schedules s
    set next_at = p_then_at, queued_at = p_queue_at,
      last_at = case when p_outcome is null then s.last_at else p_at end,
      last_outcome = coalesce(p_outcome, s.last_outcome),
      last_reason = case when p_outcome is null then s.last_reason else p_reason end,
      last_message = case when p_outcome is null then s.last_message else p_message end,
      held_until = null, tries = 0, failure_reason = null, failure_message = null,
      updated_at = cnapi_now()
    where s.id = p_id;
  return true;
end $$;

-- A caller runs the schedule beside its times: next_at and queued_at stay. The caller creates the
-- job p_job in the same statement if the answer is true. p_changes: as the caller has read it.
-- False: the schedule was changed or deleted, its last job has not ended, or the caller (p_actor)
-- has created a job with the key p_key.
create function cnapi_run_push_schedule(
  p_id uuid, p_changes int, p_job uuid, p_actor text, p_key text
) returns boolean language plpgsql volatile as $$
declare
  moment timestamptz;
begin
  perform 1 from cnapi_push_schedules s where s.id = p_id and s.changes = p_changes for update;
  if not found or cnapi_is_busy_push_schedule(p_id) then
    return false;
  end if;
  if exists (
    select 1 from cnapi_push_jobs j
      where coalesce(j.actor, '') = coalesce(p_actor, '') and j.idempotency_key = p_key
  ) then
    return false;
  end if;
  moment := cnapi_now();
  insert into cnapi_push_firings (schedule, number, job)
    select s.id, s.fired + 1, p_job from cnapi_push_schedules s where s.id = p_id;
  update cnapi_push_schedules s
    set last_at = moment, last_outcome = 'started', last_reason = null, last_message = null,
      last_job = p_job, fired = s.fired + 1, updated_at = moment
    where s.id = p_id;
  return true;
end $$;
