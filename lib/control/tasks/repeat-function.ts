/**
 * The function that stores repeated reports; called by `report-store.ts` only. Its rules are those
 * of the first time.
 */

/**
 * Like cnapi_record_reports, for reports that may be stored already because their answer was lost.
 * A piece of output is repeated if its place in its stream holds a piece of the same place, or the
 * mark of a cut that removed it. For all other reports the task's row shows it. Only this function
 * does these lookups: the first time none is needed. Returns each of their tasks in its present
 * state, because the first change was announced to nobody.
 */
export const repeatFunction = `
create function cnapi_record_repeated_reports(
  p_ids uuid[], p_servers uuid[], p_attempts int[], p_names text[], p_reported text[], p_data text[], p_results text[],
  p_streams text[], p_first_bytes bigint[], p_bytes int[], p_half_bytes int, p_half_events int, p_repeated boolean[]
) returns table (id uuid, ended boolean) language plpgsql volatile as $$
#variable_conflict use_column
declare
  told uuid[] := p_ids;
begin
  perform 1 from cnapi_tasks t where t.id = any (p_ids) order by t.id for update;
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
  if p_ids is not null then
    perform cnapi_record_reports(
      p_ids, p_servers, p_attempts, p_names, p_reported, p_data, p_results, p_streams, p_first_bytes, p_bytes,
      p_half_bytes, p_half_events);
  end if;
  return query select t.id, t.state = 'ended' from cnapi_tasks t where t.id = any (told);
end $$;
`;
