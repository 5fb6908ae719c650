/**
 * Statements over several rows, as database functions (law 5). They are VOLATILE, so each statement
 * in them reads afresh. They take the locks first (the roster row, then tasks by id, or `skip
 * locked`), and read the time once, after the locks. Called by `claim-store.ts` and
 * `report-store.ts` only.
 */

/**
 * The first versions of the claim, under their migrations. `claim-function.ts` has and explains the
 * current one.
 */
const claimQueued = `cnapi_claim_tasks(
  p_run uuid, p_servers uuid[], p_epochs bigint[], p_journals uuid[], p_overdue_ms int, p_resend_ms int,
  p_most_claimed int, p_most int, p_most_bytes int, p_most_all int, p_most_all_bytes int, p_most_cancels int
) returns table (
  what text, id uuid, server_uuid uuid, attempt int, epoch bigint, name text, params json, timeout_ms int, req_id text
) language plpgsql volatile as $$
#variable_conflict use_column
declare
  wanted uuid[] := array(
    select distinct t.server_uuid from cnapi_tasks t where t.state = 'queued' and t.server_uuid = any (p_servers));
  held uuid[];
  picked uuid[];
  room int;
  room_bytes bigint;
  given int := 0;
  given_bytes bigint := 0;
  is_full boolean;
  mine record;
  moment timestamptz;
begin
  held := array(
    select r.server_uuid
      from cnapi_roster_authority r
      join unnest(p_servers, p_epochs) as m (server_uuid, epoch) on m.server_uuid = r.server_uuid and m.epoch = r.epoch
      where r.server_uuid = any (wanted) and r.run = p_run and r.status = 'running'
      order by r.server_uuid
      for share of r);
  moment := cnapi_now();
  for mine in
    select * from unnest(p_servers, p_epochs, p_journals) as m (server_uuid, epoch, journal_id)
      where m.server_uuid = any (held)
  loop
    is_full := false;
    if given < p_most_all and given_bytes < p_most_all_bytes then
      select p_most_claimed - count(*), p_most_bytes - coalesce(sum(t.params_bytes) filter (where t.accepted_at is null), 0)
        into room, room_bytes
        from cnapi_tasks t where t.server_uuid = mine.server_uuid and t.state = 'claimed';
      picked := array(
        select t.id from cnapi_tasks t where t.state = 'queued' and t.id = any (array(
          select first.id from (
            select q.id, sum(q.params_bytes) over (order by q.queued_at, q.id) - q.params_bytes as bytes_before
              from (select * from cnapi_tasks t where t.server_uuid = mine.server_uuid and t.state = 'queued'
                order by t.queued_at, t.id limit least(p_most, greatest(room, 0))) as q
          ) as first where first.bytes_before < room_bytes))
          for update skip locked);
      is_full := cardinality(picked) < p_most;
      given := given + cardinality(picked);
      given_bytes := given_bytes + (select coalesce(sum(t.params_bytes), 0) from cnapi_tasks t where t.id = any (picked));
      return query
        with sent as (
          update cnapi_tasks t
            set state = 'claimed', attempt = t.attempt + 1, epoch = mine.epoch, journal_id = mine.journal_id,
              claimed_at = moment, sent_at = moment, cancel_sent_at = null
            where t.id = any (picked)
            returning t.*
        )
        select 'send', s.id, s.server_uuid, s.attempt, s.epoch, s.name, s.params, s.timeout_ms, s.req_id
          from sent s order by s.queued_at, s.id;
    end if;
    return query
      select case when is_full then 'full' else 'more' end, null::uuid, mine.server_uuid, 0, mine.epoch, '', '{}'::json, 0,
          null::text
        where exists (select 1 from cnapi_tasks t where t.server_uuid = mine.server_uuid and t.state = 'queued');
  end loop;
`;

export const claimFunction = `
create function ${claimQueued}  picked := array(
    select due.id from unnest(p_servers, p_epochs) as m (server_uuid, epoch)
      cross join lateral (
        select t.id, t.cancel_sent_at from cnapi_tasks t
          where t.server_uuid = m.server_uuid and t.epoch = m.epoch and t.state = 'claimed'
            and (t.cancel_requested_at is not null
              or coalesce(t.started_at, t.accepted_at, t.claimed_at)
                < moment - (t.timeout_ms + p_overdue_ms) * interval '1 ms')
            and (t.cancel_sent_at is null or t.cancel_sent_at < moment - p_resend_ms * interval '1 ms')
          order by t.cancel_sent_at nulls first, t.id limit p_most
      ) as due
      order by due.cancel_sent_at nulls first, due.id limit p_most_cancels);
  picked := array(
    select t.id from cnapi_tasks t where t.id = any (picked) and t.state = 'claimed' for update skip locked);
  return query
    update cnapi_tasks t set cancel_sent_at = moment
      where t.id = any (picked)
      returning 'cancel', t.id, t.server_uuid, t.attempt, t.epoch, t.name, '{}'::json, t.timeout_ms, t.req_id;
end $$;
`;

/**
 * Like the first version, but the slow poll need not handle a cancel that was skipped because its
 * task's row was locked: its server is returned as 'later'. Before, recording an acceptance delayed
 * a simultaneous cancel by seconds.
 */
export const claimLaterFunction = `
create or replace function ${claimQueued}  declare
    due_tasks uuid[] := array(
      select due.id from unnest(p_servers, p_epochs) as m (server_uuid, epoch)
        cross join lateral (
          select t.id, t.cancel_sent_at from cnapi_tasks t
            where t.server_uuid = m.server_uuid and t.epoch = m.epoch and t.state = 'claimed'
              and (t.cancel_requested_at is not null
                or coalesce(t.started_at, t.accepted_at, t.claimed_at)
                  < moment - (t.timeout_ms + p_overdue_ms) * interval '1 ms')
              and (t.cancel_sent_at is null or t.cancel_sent_at < moment - p_resend_ms * interval '1 ms')
            order by t.cancel_sent_at nulls first, t.id limit p_most
        ) as due
        order by due.cancel_sent_at nulls first, due.id limit p_most_cancels);
  begin
    if cardinality(due_tasks) = 0 then
      return;
    end if;
    picked := array(
      select t.id from cnapi_tasks t where t.id = any (due_tasks) and t.state = 'claimed' for update skip locked);
    return query
      update cnapi_tasks t set cancel_sent_at = moment
        where t.id = any (picked)
        returning 'cancel', t.id, t.server_uuid, t.attempt, t.epoch, t.name, '{}'::json, t.timeout_ms, t.req_id;
    return query
      select distinct on (t.server_uuid) 'later', null::uuid, t.server_uuid, 0, t.epoch, '', '{}'::json, 0, null::text
        from cnapi_tasks t where t.id = any (due_tasks) and not t.id = any (picked) and t.state = 'claimed';
  end;
end $$;
`;

/**
 * Stores many reports of agents at a time: events, and ends by their outcome ('complete',
 * 'failure'). Skips a report that is not about the present attempt of a claimed task of that
 * server. Returns the tasks that changed.
 */
export const recordFunction = `
create function cnapi_record_reports(
  p_ids uuid[], p_servers uuid[], p_attempts int[], p_names text[], p_reported text[], p_data text[], p_results text[],
  p_streams text[], p_first_bytes bigint[], p_bytes int[], p_half_bytes int, p_half_events int
) returns table (id uuid, ended boolean) language plpgsql volatile as $$
#variable_conflict use_column
declare
  moment timestamptz;
  long record;
begin
  perform 1 from cnapi_tasks t where t.id = any (p_ids) order by t.id for update;
  moment := cnapi_now();
  return query
    with fit as (
      select r.*, t.last_seq, t.progress_seq, t.accepted_at, t.started_at,
          row_number() over (partition by r.id, r.name order by r.n desc) as newest_rank,
          row_number() over (partition by r.id, r.name order by r.n) as oldest_rank
        from unnest(p_ids, p_servers, p_attempts, p_names, p_reported, p_data, p_results, p_streams, p_first_bytes, p_bytes)
          with ordinality as r (id, server_uuid, attempt, name, reported_at, data, result, stream, first_byte, bytes, n)
        join cnapi_tasks t on t.id = r.id and t.server_uuid = r.server_uuid and t.attempt = r.attempt
        where t.state = 'claimed'
    ), kept as (
      select f.*, f.last_seq + row_number() over (partition by f.id order by f.n) as seq
        from fit f
        where f.name = 'output'
          or (f.name = 'progress' and f.newest_rank = 1)
          or (f.name = 'accepted' and f.accepted_at is null and f.oldest_rank = 1)
          or (f.name = 'started' and f.started_at is null and f.oldest_rank = 1)
    ), outdated as (
      delete from cnapi_task_events e using kept k
        where k.name = 'progress' and e.task_id = k.id and e.seq = k.progress_seq
    ), added as (
      insert into cnapi_task_events (task_id, seq, attempt, name, stored_at, reported_at, data, stream, first_byte, bytes)
        select k.id, k.seq, k.attempt, k.name, moment, k.reported_at, k.data::json, k.stream, k.first_byte, k.bytes
          from kept k
    ), sums as (
      select f.id, bool_or(f.name not in ('accepted', 'complete', 'failure')) as has_started,
          bool_or(f.name not in ('complete', 'failure')) as is_taken,
          (select count(*) from kept k where k.id = f.id) as count,
          (select count(*) from kept k where k.id = f.id and k.name = 'output') as pieces,
          (select coalesce(sum(k.bytes), 0) from kept k where k.id = f.id) as bytes
        from fit f group by f.id
    ), changed as (
      update cnapi_tasks t
        set accepted_at = case when s.is_taken then coalesce(t.accepted_at, moment) else t.accepted_at end,
            started_at = case when s.has_started then coalesce(t.started_at, moment) else t.started_at end,
            progress = coalesce(p.data::json, t.progress),
            progress_at = case when p.id is null then t.progress_at else moment end,
            progress_seq = coalesce(p.seq::int, t.progress_seq),
            last_seq = t.last_seq + s.count,
            kept_events = t.kept_events + s.pieces,
            kept_bytes = t.kept_bytes + s.bytes,
            state = case when e.id is null then t.state else 'ended' end,
            outcome = e.name,
            result = e.result::json,
            error = e.data::json
        from sums s
          left join kept p on p.id = s.id and p.name = 'progress'
          left join fit e on e.id = s.id and e.name in ('complete', 'failure') and e.newest_rank = 1
        where t.id = s.id
        returning t.id, t.state
    )
    select c.id, c.state = 'ended' from changed c;
  for long in
    select t.id from cnapi_tasks t
      where t.id = any (p_ids) and (t.kept_bytes > 5 * p_half_bytes or t.kept_events > 5 * p_half_events
        or (t.state = 'ended' and (t.kept_bytes > 2 * p_half_bytes or t.kept_events > 2 * p_half_events)))
  loop
    perform cnapi_cut_output(long.id, p_half_bytes, p_half_events);
  end loop;
end $$;

-- Drops the middle of each output stream that is too long; the first piece dropped stays as the mark of the cut.
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
      set cut = m.dropped, bytes = 0, data = json_build_object('stream', e.stream, 'offset', e.first_byte, 'cut', m.dropped)
      from middle m where e.task_id = p_id and e.seq = m.seq and m.is_mark
  )
  delete from cnapi_task_events e using middle m where e.task_id = p_id and e.seq = m.seq and not m.is_mark;
  update cnapi_tasks t set kept_events = k.count, kept_bytes = k.bytes
    from (select count(*), coalesce(sum(e.bytes), 0) as bytes from cnapi_task_events e
      where e.task_id = p_id and e.name = 'output') k
    where t.id = p_id;
end $$;
`;

/**
 * Ends tasks that no agent takes or will report: queued for p_start_by_ms; past their timeout by
 * p_overdue_ms while their server is unknown; past it by ten times that in any case. Any instance
 * calls it; locked rows are left for the next call.
 */
export const sweepFunction = `
create function cnapi_sweep_tasks(
  p_start_by_ms int, p_overdue_ms int, p_not_taken text, p_not_taken_again text, p_timed_out text, p_most int
) returns setof uuid language plpgsql volatile as $$
declare
  moment timestamptz := cnapi_now();
  picked uuid[];
begin
  picked := array(
    select t.id from cnapi_tasks t
      where t.state = 'queued' and t.queued_at < moment - p_start_by_ms * interval '1 ms'
      order by t.id limit p_most
      for update skip locked);
  return query
    update cnapi_tasks t
      set state = 'ended', outcome = 'failure', error = (case when t.uncertain then p_not_taken_again else p_not_taken end)::json
      where t.id = any (picked) and t.state = 'queued'
      returning t.id;
  picked := array(
    select t.id from cnapi_tasks t
      join cnapi_roster_authority r on r.server_uuid = t.server_uuid
      where t.state = 'claimed'
        and coalesce(t.started_at, t.accepted_at, t.claimed_at) < moment
          - (t.timeout_ms + p_overdue_ms * (case r.status when 'unknown' then 1 else 10 end)) * interval '1 ms'
      order by t.id limit p_most
      for update of t skip locked for share of r skip locked);
  return query
    update cnapi_tasks t set state = 'ended', outcome = 'failure', error = p_timed_out::json
      where t.id = any (picked) and t.state = 'claimed'
      returning t.id;
end $$;
`;
