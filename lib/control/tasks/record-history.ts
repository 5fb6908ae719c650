/**
 * The first version of the function that stores what agents report, under its migration.
 * `record-function.ts` has and explains the current one.
 */
export const firstStoreReportsFunction = `
create function cnapi_store_task_reports(
  p_ids uuid[], p_servers uuid[], p_attempts int[], p_names text[], p_reported text[], p_data text[], p_results text[],
  p_streams text[], p_first_bytes bigint[], p_bytes int[], p_half_bytes int, p_half_events int, p_repeated boolean[]
) returns table (id uuid, what text) language plpgsql volatile as $$
#variable_conflict use_column
declare
  told uuid[] := array(select distinct i from unnest(p_ids) as i);
  held uuid[];
  locked uuid[] := '{}';
  moment timestamptz;
  long record;
begin
  held := array(select t.id from cnapi_tasks t where t.id = any (told) for update skip locked);
  if cardinality(held) < cardinality(told) then
    locked := array(
      select t.id from cnapi_tasks t where t.id = any (told) except select i from unnest(held) as i);
    return query select i, 'locked' from unnest(locked) as i;
  end if;
  moment := cnapi_now();
  if p_repeated is not null then
    with report as (
      select * from unnest(p_ids, p_servers, p_attempts, p_names, p_reported, p_data, p_results, p_streams, p_first_bytes,
          p_bytes, p_repeated)
        with ordinality as r (id, server_uuid, attempt, name, reported_at, data, result, stream, first_byte, bytes, repeated, n)
    ), stored as materialized (
      select e.task_id, e.attempt, e.stream, e.first_byte, e.cut from cnapi_task_events e
        where e.name = 'output'
          and e.task_id = any (array(select distinct r.id from report r where r.repeated and r.name = 'output'))
    ), again as materialized (
      select r.n from report r
          join stored s on s.task_id = r.id and s.attempt = r.attempt and s.stream = r.stream and s.first_byte = r.first_byte
        where r.repeated
      union
      select r.n from report r
          join stored s on s.task_id = r.id and s.attempt = r.attempt and s.stream = r.stream
            and s.cut > 0 and r.first_byte between s.first_byte and s.first_byte + s.cut - 1
        where r.repeated
    )
    select array_agg(q.id), array_agg(q.server_uuid), array_agg(q.attempt), array_agg(q.name), array_agg(q.reported_at),
        array_agg(q.data), array_agg(q.result), array_agg(q.stream), array_agg(q.first_byte), array_agg(q.bytes)
      into p_ids, p_servers, p_attempts, p_names, p_reported, p_data, p_results, p_streams, p_first_bytes, p_bytes
      from (select * from report r where r.n not in (select a.n from again a) order by r.n) as q;
  end if;
  return query
    with fit as (
      select r.*, t.last_seq, t.progress_seq,
          case r.name
            when 'output' then true
            when 'progress' then row_number() over (partition by r.id, r.name order by r.n desc) = 1
            when 'accepted' then t.accepted_at is null and row_number() over (partition by r.id, r.name order by r.n) = 1
            when 'started' then t.started_at is null and row_number() over (partition by r.id, r.name order by r.n) = 1
            else false end as is_kept
        from unnest(p_ids, p_servers, p_attempts, p_names, p_reported, p_data, p_results, p_streams, p_first_bytes, p_bytes)
          with ordinality as r (id, server_uuid, attempt, name, reported_at, data, result, stream, first_byte, bytes, n)
        join cnapi_tasks t on t.id = r.id and t.server_uuid = r.server_uuid and t.attempt = r.attempt
        where t.state = 'claimed' and t.id <> all (locked)
    ), kept as (
      select f.*, f.last_seq + row_number() over (partition by f.id order by f.n) as seq from fit f where f.is_kept
    ), outdated as (
      delete from cnapi_task_events e using kept k
        where k.name = 'progress' and e.task_id = k.id and e.seq = k.progress_seq
    ), added as (
      insert into cnapi_task_events (task_id, seq, attempt, name, stored_at, reported_at, data, stream, first_byte, bytes)
        select k.id, k.seq, k.attempt, k.name, moment, k.reported_at, k.data::json, k.stream, k.first_byte, k.bytes
          from kept k
    ), sums as (
      select a.id,
          bool_or(a.name not in ('accepted', 'complete', 'failure')) as has_started,
          bool_or(a.name not in ('complete', 'failure')) as is_taken,
          count(*) filter (where a.seq is not null) as count,
          count(*) filter (where a.name = 'output') as pieces,
          coalesce(sum(a.bytes) filter (where a.seq is not null), 0) as bytes,
          max(a.seq) filter (where a.name = 'progress') as progress_seq,
          max(a.data) filter (where a.name = 'progress' and a.seq is not null) as progress,
          (array_agg(a.name order by a.n desc) filter (where a.name in ('complete', 'failure')))[1] as outcome,
          (array_agg(a.result order by a.n desc) filter (where a.name in ('complete', 'failure')))[1] as result,
          (array_agg(a.data order by a.n desc) filter (where a.name in ('complete', 'failure')))[1] as error
        from (
          select k.id, k.name, k.bytes, k.data, null as result, k.seq, k.n from kept k
          union all
          select f.id, f.name, f.bytes, f.data, f.result, null, f.n from fit f where not f.is_kept
        ) as a
        group by a.id
    ), changed as (
      update cnapi_tasks t
        set accepted_at = case when s.is_taken then coalesce(t.accepted_at, moment) else t.accepted_at end,
            started_at = case when s.has_started then coalesce(t.started_at, moment) else t.started_at end,
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
        where t.id = s.id
        returning t.id, t.state
    )
    select c.id, case c.state when 'ended' then 'ended' else 'changed' end from changed c where p_repeated is null;
  for long in
    select t.id from cnapi_tasks t
      where t.id = any (told) and t.id <> all (locked)
        and (t.kept_bytes > 5 * p_half_bytes or t.kept_events > 5 * p_half_events
          or (t.state = 'ended' and (t.kept_bytes > 2 * p_half_bytes or t.kept_events > 2 * p_half_events)))
  loop
    perform cnapi_cut_output(long.id, p_half_bytes, p_half_events);
  end loop;
  if p_repeated is not null then
    return query
      select t.id, case t.state when 'ended' then 'ended' else 'changed' end
        from cnapi_tasks t where t.id = any (told) and t.id <> all (locked);
  end if;
end $$;
`;
