-- Statements that end several tasks lock all that these ends write, before they write: reports of
-- servers by uuid, tasks by id, VMs by uuid. Two of them never wait for each other, nor for a
-- transaction that stays open: they skip what is locked, and are called again.

-- Locks these tasks and, of those about VMs, what the triggers of their ends write. Returns the
-- tasks of which all is locked.
create function cnapi_lock_all_of(p_tasks uuid[]) returns uuid[]
language plpgsql volatile as $$
declare
  of_vms uuid[];
  busy uuid[];
  held uuid[];
  held_of_vms uuid[];
  vm_servers uuid[];
  vms text[];
  busy_vms text[];
begin
  -- Each task is a lookup of the primary key (`offset 0`); Postgres would else read the tasks of all
  -- servers in their order, where it expects few.
  of_vms := array(
    select t.id from unnest(p_tasks) as p (id)
      cross join lateral (select t.id, t.name from cnapi_tasks t where t.id = p.id offset 0) as t
      where starts_with(t.name, 'machine_'));
  if cardinality(of_vms) = 0 then
    return array(
      select t.id from cnapi_tasks t where t.id = any (p_tasks)
        order by t.id for update skip locked);
  end if;
  busy := cnapi_lock_reports(array(
    select distinct t.server_uuid from cnapi_tasks t where t.id = any (of_vms)));
  if cardinality(busy) > 0 then
    busy := array(
      select t.id from cnapi_tasks t where t.id = any (of_vms) and t.server_uuid = any (busy));
  end if;
  held := array(
    select t.id from cnapi_tasks t
      where t.id = any (array(select p from unnest(p_tasks) as p except select b from unnest(busy) as b))
      order by t.id for update skip locked);
  select array_agg(t.id), array_agg(t.server_uuid), array_agg(t.vm)
    into held_of_vms, vm_servers, vms
    from (
      select t.id, t.server_uuid, cnapi_vm_of_task(t.params) as vm from cnapi_tasks t
        where t.id = any (array(
          select h from unnest(held) as h intersect select o from unnest(of_vms) as o))
    ) as t
    where t.vm is not null;
  busy_vms := cnapi_lock_vms(vm_servers, vms);
  if cardinality(busy_vms) > 0 then
    held := array(
      select h from unnest(held) as h except
        select u.id from unnest(held_of_vms, vms) as u (id, vm) where u.vm = any (busy_vms));
  end if;
  return held;
end $$;

-- Locks at most p_most of these tasks in the same way. Tasks that cannot be locked take the place of
-- no others.
create function cnapi_lock_some_of(p_tasks uuid[], p_most int) returns uuid[]
language plpgsql volatile as $$
declare
  held uuid[] := '{}';
  place int := 1;
  next_place int;
begin
  while place <= cardinality(p_tasks) and cardinality(held) < p_most loop
    next_place := place + p_most - cardinality(held);
    held := held || cnapi_lock_all_of(p_tasks[place:next_place - 1]);
    place := next_place;
  end loop;
  return held;
end $$;

-- As in 006-settle-inventories.sql. Also 'locked' if what the end of a task writes is locked.
create or replace function cnapi_settle_inventories(
  p_run uuid, p_ids uuid[], p_servers uuid[], p_epochs bigint[], p_journals uuid[],
  p_attempts int[], p_cancels boolean[], p_actions text[], p_errors text[]
) returns table (id uuid, what text) language plpgsql volatile as $$
#variable_conflict use_column
declare
  free_servers uuid[];
  of_free_servers uuid[];
  free_tasks uuid[];
  moment timestamptz;
begin
  free_servers := array(
    select r.server_uuid from cnapi_roster_authority r
      where r.server_uuid = any (p_servers) order by r.server_uuid for share skip locked);
  of_free_servers := array(
    select t.id from cnapi_tasks t
      where t.id = any (p_ids) and t.server_uuid = any (free_servers));
  free_tasks := cnapi_lock_all_of(of_free_servers);
  return query
    select t.id, 'locked' from cnapi_tasks t
      where t.id in (select i from unnest(p_ids) as i except select i from unnest(free_tasks) as i);
  moment := cnapi_now();
  return query
    with changed as (
      update cnapi_tasks t
        set state = case d.action
              when 'fail' then 'ended'
              when 'again' then 'queued' when 'again-uncertain' then 'queued'
              else t.state end,
            outcome = case d.action when 'fail' then 'failure' end,
            error = d.error::json,
            epoch = d.epoch,
            journal_id = d.journal_id,
            cancel_sent_at = null,
            uncertain = t.uncertain or d.action = 'again-uncertain',
            queued_at = case when d.action like 'again%' then moment else t.queued_at end,
            accepted_at = case when d.action like 'again%' then null
              else coalesce(t.accepted_at, moment) end,
            started_at = case when d.action like 'again%' then null
              when d.action = 'runs' then coalesce(t.started_at, moment) else t.started_at end,
            progress_at = case when d.action like 'again%' then null else t.progress_at end,
            progress = case when d.action like 'again%' then null else t.progress end,
            progress_seq = case when d.action like 'again%' then null else t.progress_seq end,
            kept_events = case when d.action like 'again%' then 0 else t.kept_events end,
            kept_bytes = case when d.action like 'again%' then 0 else t.kept_bytes end,
            last_seq = t.last_seq + case when d.action like 'again%' then 1 else 0 end
        from unnest(p_ids, p_servers, p_epochs, p_journals, p_attempts, p_cancels, p_actions,
              p_errors)
            as d (id, server_uuid, epoch, journal_id, attempt, is_cancelled, action, error)
          join cnapi_roster_authority r
            on r.server_uuid = d.server_uuid and r.run = p_run and r.epoch = d.epoch
        where t.id = d.id and t.server_uuid = d.server_uuid and t.state = 'claimed'
          and t.attempt = d.attempt and t.epoch < d.epoch
          and (t.cancel_requested_at is not null) = d.is_cancelled and t.id = any (free_tasks)
        returning t.id, t.state, t.attempt, t.last_seq, d.action
    ), noted as (
      insert into cnapi_task_events (task_id, seq, attempt, name, stored_at, data)
        select c.id, c.last_seq, c.attempt, 'retry', moment, json_build_object('reason',
            case c.action when 'again' then 'the server had not received it'
              else 'the server lost its record of the task, which may be run again' end)
          from changed c where c.action like 'again%'
    ), dropped as (
      delete from cnapi_task_events e using changed c
        where c.action like 'again%' and e.task_id = c.id and e.name in ('output', 'progress')
    )
    select c.id, case c.state when 'ended' then 'ended' else 'changed' end from changed c;
end $$;

-- As in 007-reports.sql. Also 'locked' if what the end of a task writes is locked.
create or replace function cnapi_record_task_reports(
  p_ids uuid[], p_servers uuid[], p_attempts int[], p_names text[], p_reported text[],
  p_data text[], p_results text[], p_streams text[], p_first_bytes bigint[], p_bytes int[],
  p_half_bytes int, p_half_events int, p_repeated boolean[]
) returns table (id uuid, what text)
language plpgsql volatile
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
  told uuid[] := array(select distinct i from unnest(p_ids) as i);
  ending uuid[];
  held uuid[];
  locked uuid[] := '{}';
  changed uuid[];
  moment timestamptz;
  task record;
begin
  ending := array(
    select distinct r.id from unnest(p_ids, p_names) as r (id, name)
      where r.name in ('complete', 'failure'));
  held := cnapi_lock_all_of(ending) || array(
    select t.id from cnapi_tasks t
      where t.id = any (array(
        select i from unnest(told) as i except select i from unnest(ending) as i))
      order by t.id for update skip locked);
  if cardinality(held) < cardinality(told) then
    locked := array(
      select t.id from cnapi_tasks t where t.id = any (told)
      except select i from unnest(held) as i);
    return query select i, 'locked' from unnest(locked) as i;
  end if;
  moment := cnapi_now();
  with report as (
    select * from unnest(p_ids, p_servers, p_attempts, p_names, p_reported, p_data, p_results,
        p_streams, p_first_bytes, p_bytes, p_repeated)
      with ordinality as r (id, server_uuid, attempt, name, reported_at, data, result,
        stream, first_byte, bytes, repeated, n)
  ), stored as (
    select e.task_id, e.attempt, e.stream, e.first_byte, e.cut from cnapi_task_events e
      where e.name = 'output'
        and e.task_id = any (array(
          select distinct r.id from report r where r.repeated and r.name = 'output'))
  ), cuts as materialized (
    select * from stored s where s.cut > 0
  ), fit as (
    select r.*, t.last_seq, t.progress_seq,
        case r.name
          when 'output' then r.repeated is not true or not (
            (r.id, r.attempt, r.stream, r.first_byte) in (
              select s.task_id, s.attempt, s.stream, s.first_byte from stored s)
            or exists (
              select from cuts c
                where c.task_id = r.id and c.attempt = r.attempt and c.stream = r.stream
                  and r.first_byte between c.first_byte and c.first_byte + c.cut - 1))
          when 'progress'
            then row_number() over (partition by r.id, r.name order by r.n desc) = 1
          when 'accepted' then t.accepted_at is null
            and row_number() over (partition by r.id, r.name order by r.n) = 1
          when 'started' then t.started_at is null
            and row_number() over (partition by r.id, r.name order by r.n) = 1
          else false end as is_kept
      from report r
      cross join lateral (
        select t.id, t.server_uuid, t.attempt, t.state, t.accepted_at, t.started_at, t.last_seq,
            t.progress_seq
          from cnapi_tasks t where t.id = r.id offset 0
      ) as t
      where t.server_uuid = r.server_uuid and t.attempt = r.attempt and t.state = 'claimed'
        and t.id <> all (locked)
  ), kept as (
    select f.*, f.last_seq + row_number() over (partition by f.id order by f.n) as seq
      from fit f where f.is_kept
  ), outdated as (
    delete from cnapi_task_events e using kept k
      where k.name = 'progress' and e.task_id = any (array[k.id]) and e.seq = k.progress_seq
  ), added as (
    insert into cnapi_task_events
        (task_id, seq, attempt, name, stored_at, reported_at, data, stream, first_byte, bytes)
      select k.id, k.seq, k.attempt, k.name, moment, k.reported_at, k.data::json, k.stream,
          k.first_byte, k.bytes
        from kept k
  ), sums as (
    select a.id,
        bool_or(a.name not in ('accepted', 'complete', 'failure')) as has_started,
        bool_or(a.name not in ('complete', 'failure')) as is_taken,
        count(*) filter (where a.seq is not null) as count,
        count(*) filter (where a.name = 'output' and a.seq is not null) as pieces,
        coalesce(sum(a.bytes) filter (where a.seq is not null), 0) as bytes,
        max(a.seq) filter (where a.name = 'progress') as progress_seq,
        max(a.data) filter (where a.name = 'progress' and a.seq is not null) as progress,
        (array_agg(a.name order by a.n desc)
          filter (where a.name in ('complete', 'failure')))[1] as outcome,
        (array_agg(a.result order by a.n desc)
          filter (where a.name in ('complete', 'failure')))[1] as result,
        (array_agg(a.data order by a.n desc)
          filter (where a.name in ('complete', 'failure')))[1] as error
      from (
        select k.id, k.name, k.bytes, k.data, null as result, k.seq, k.n from kept k
        union all
        select f.id, f.name, f.bytes, f.data, f.result, null, f.n from fit f where not f.is_kept
      ) as a
      group by a.id
  ), written as (
    update cnapi_tasks t
      set accepted_at = case when s.is_taken then coalesce(t.accepted_at, moment)
            else t.accepted_at end,
          started_at = case when s.has_started then coalesce(t.started_at, moment)
            else t.started_at end,
          progress = coalesce(s.progress::json, t.progress),
          progress_at = case when s.progress_seq is null then t.progress_at else moment end,
          progress_seq = coalesce(s.progress_seq::int, t.progress_seq),
          last_seq = t.last_seq + s.count,
          kept_events = t.kept_events + s.pieces,
          kept_bytes = t.kept_bytes + s.bytes,
          state = case when s.outcome is null then t.state else 'ended' end,
          outcome = s.outcome,
          result = s.result::json,
          error = s.error::json
      from sums s
      where t.id = any (array[s.id])
      returning t.id
  )
  select array_agg(w.id) into changed from written w;
  for task in
    select t.id, t.state,
        t.kept_bytes > 5 * p_half_bytes or t.kept_events > 5 * p_half_events
          or (t.state = 'ended'
            and (t.kept_bytes > 2 * p_half_bytes or t.kept_events > 2 * p_half_events)) as is_long
      from cnapi_tasks t
      where t.id = any (case when p_repeated is null then changed else held end)
  loop
    if task.is_long then
      perform cnapi_cut_output(task.id, p_half_bytes, p_half_events);
    end if;
    id := task.id;
    what := case task.state when 'ended' then 'ended' else 'changed' end;
    return next;
  end loop;
end $$;

-- As in 008-sweep.sql. Tasks whose ends write what is locked are left for the next call.
create or replace function cnapi_sweep_late_tasks(
  p_start_by bigint, p_overdue bigint,
  p_not_taken text, p_not_taken_again text, p_timed_out text, p_most int,
  p_most_claimed int, p_most_bytes bigint, p_most_held_bytes bigint,
  p_most_posts int, p_most_post_bytes bigint,
  p_has_room_for_posts boolean
) returns setof uuid language plpgsql volatile as $$
declare
  present bigint := cnapi_tick();
  full_servers uuid[];
  picked uuid[];
  due uuid[];
  part uuid[];
  place int := 1;
  next_place int;
begin
  full_servers := array(
    select waiting.server_uuid
      from (select distinct t.server_uuid from cnapi_tasks t
        where t.state = 'queued' and t.queued_tick < present - p_start_by) as waiting
      join cnapi_roster_authority r
        on r.server_uuid = waiting.server_uuid and r.status = 'running'
      cross join lateral cnapi_given_tasks(waiting.server_uuid, r.run is null) as has
      where case when r.run is null
        then has.tasks >= p_most_posts or has.bytes >= p_most_post_bytes
          or not p_has_room_for_posts
        else has.tasks >= p_most_claimed or has.bytes >= p_most_held_bytes
          or has.unaccepted_bytes >= p_most_bytes and has.unaccepted_since >= present - p_start_by
        end
      order by waiting.server_uuid);
  perform cnapi_record_full_servers(full_servers);

  picked := cnapi_lock_some_of(array(
    select t.id from cnapi_tasks t
      where t.state = 'queued' and t.queued_tick < present - p_start_by
        and not t.server_uuid = any (full_servers)
        and not exists (select 1 from cnapi_full_servers f
          where f.server_uuid = t.server_uuid and f.tick >= present - p_start_by)
      order by t.id limit 20 * p_most), p_most);
  return query
    update cnapi_tasks t
      set state = 'ended', outcome = 'failure',
        error = (case when t.uncertain then p_not_taken_again else p_not_taken end)::json
      where t.id = any (picked) and t.state = 'queued'
        and t.queued_tick < present - p_start_by
      returning t.id;

  due := array(
    select t.id from cnapi_tasks t
      join cnapi_roster_authority r on r.server_uuid = t.server_uuid
      where t.state = 'claimed'
        and t.worked_tick < present - ceil(t.timeout_ms / 1000.0)
          - p_overdue * (case r.status when 'unknown' then 1 else 10 end)
      order by t.id limit 20 * p_most);
  picked := '{}';
  while place <= cardinality(due) and cardinality(picked) < p_most loop
    next_place := place + p_most - cardinality(picked);
    part := cnapi_lock_all_of(due[place:next_place - 1]);
    picked := picked || array(
      select t.id from cnapi_tasks t
        join cnapi_roster_authority r on r.server_uuid = t.server_uuid
        where t.id = any (part) and t.state = 'claimed'
          and t.worked_tick < present - ceil(t.timeout_ms / 1000.0)
            - p_overdue * (case r.status when 'unknown' then 1 else 10 end)
        order by t.id for share of r skip locked);
    place := next_place;
  end loop;
  return query
    update cnapi_tasks t set state = 'ended', outcome = 'failure', error = p_timed_out::json
      where t.id = any (picked) and t.state = 'claimed'
      returning t.id;
end $$;

drop function cnapi_lock_reports_of(uuid[]);
