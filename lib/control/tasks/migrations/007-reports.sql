-- Drops the middle of each output stream that is too long. The first dropped piece stays as the
-- mark of the cut.
create function cnapi_cut_output(p_id uuid, p_half_bytes int, p_half_events int) returns void
language plpgsql volatile as $$
begin
  with pieces as (
    select e.seq, e.attempt, e.stream, e.bytes, e.cut,
        sum(e.bytes) over forwards as up_to, sum(e.bytes) over backwards as from_here,
        count(*) over forwards as rank, count(*) over backwards as back_rank
      from cnapi_task_events e
      where e.task_id = p_id and e.name = 'output'
      window forwards as (partition by e.attempt, e.stream order by e.seq),
        backwards as (partition by e.attempt, e.stream order by e.seq desc)
  ), middle as (
    select p.*, row_number() over (partition by p.attempt, p.stream order by p.seq) = 1 as is_mark,
        sum(p.bytes + p.cut) over (partition by p.attempt, p.stream) as dropped
      from pieces p
      where p.cut > 0
        or (p.up_to - p.bytes >= p_half_bytes and p.from_here - p.bytes >= p_half_bytes)
        or (p.rank > p_half_events and p.back_rank > p_half_events)
  ), marked as (
    update cnapi_task_events e
      set cut = m.dropped, bytes = 0,
        data = json_build_object('stream', e.stream, 'offset', e.first_byte, 'cut', m.dropped)
      from middle m where e.task_id = p_id and e.seq = m.seq and m.is_mark
  )
  delete from cnapi_task_events e using middle m
    where e.task_id = p_id and e.seq = m.seq and not m.is_mark;
  update cnapi_tasks t set kept_events = k.count, kept_bytes = k.bytes
    from (select count(*), coalesce(sum(e.bytes), 0) as bytes from cnapi_task_events e
      where e.task_id = p_id and e.name = 'output') k
    where t.id = p_id;
end $$;

-- Stores many reports at a time: events, and ends by their outcome ('complete', 'failure'). Skips a
-- report that is not about the present attempt of a claimed task of that server. Reports that are
-- `repeated` may have been stored before, because the answer was lost. Of these it skips a piece of
-- output that is stored already: its place in its stream holds a piece of the same place, or the
-- mark of a cut that removed it. For all other reports the task's row shows whether they are
-- repeated.
--
-- Returns each task that it changed ('changed', or 'ended'). With p_repeated it returns each task
-- in its present state, because the first change was announced to nobody. Returns 'locked' for each
-- task of which the row, or what its end writes, is locked: nothing of it was stored.
--
-- The cost is linear, whatever the statistics are. A connection plans the statements once, as for
-- claims (005-claim-for-sessions.sql says why, and why it reads `= any (array[…])`). The reports
-- are joined with the tasks once, each by a lookup of the primary key (`offset 0`), and grouped by
-- task. Postgres expects a few rows, and would plan nested loops that cost the square of thousands,
-- or read whole tables that were nearly empty when it planned: 4,000 reports took 1.7 s of CPU time
-- instead of 0.2. So there are no sequential scans. Without them a query costs so much by the
-- planner's estimate that Postgres before 18 compiles it each time, so it is not compiled.
create function cnapi_record_task_reports(
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
  held := cnapi_lock_task_ends(ending) || array(
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
