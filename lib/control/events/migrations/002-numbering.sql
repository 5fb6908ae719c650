-- Moves at most p_most changes from the outbox to the log. Does not wait for another instance that
-- is doing so. Returns how many it moved, the id of the log's last event, and how long the oldest
-- of them had waited.
--
-- A hole gets its mark at the numbering after the one that found it: that numbering's own
-- transaction id is above that of every transaction that was running when the hole was found. The
-- end of the snapshot that found it (`pg_snapshot_xmax`) is not, because the newest running
-- transactions may be above it.
--
-- The gap that informs readers of missing changes comes after all changes that had waited: the
-- missing ones are younger, and a reader that reads the whole state again at the gap must not
-- receive older changes afterwards. One gap is not enough. A transaction that finds the outbox
-- full, and a miss already recorded, records none itself. If it commits after the gap, its change
-- is never recorded, and a reader that read the whole state at the gap has read it before that
-- commit. So the gap is repeated when all transactions that ran then have ended; later ones find
-- room in the outbox. A single late gap is no solution, because a transaction may run for hours.
--
-- Sequential scans are off, because the planner would choose one for a small table, and it reads
-- all dead rows. A query without them costs so much by the planner's estimate that Postgres before
-- 18 compiles it each time: a numbering took 400 ms instead of 10. So it is not compiled.
create function cnapi_number_events(p_most int)
returns table (numbered int, last_id bigint, waited_ms bigint)
language plpgsql volatile set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
  log cnapi_event_numberings;
  moment timestamptz;
  ended_below bigint;
  reached bigint;
  read_to bigint;
  moved_ids bigint[];
  moved int;
  waited interval;
  missed_since timestamptz;
begin
  select * into log from cnapi_event_numberings n order by n.id desc limit 1;
  if cardinality(log.hole_from) = 0
    and not exists (select 1 from cnapi_event_outbox o where o.id > log.read_id)
    and not exists (select 1 from cnapi_event_misses) and log.gap_mark is null then
    return query select 0, log.last_id, 0::bigint;
    return;
  end if;
  perform 1 from cnapi_event_log for update skip locked;
  if not found then
    return query select 0, log.last_id, 0::bigint;
    return;
  end if;
  moment := cnapi_now();
  select * into log from cnapi_event_numberings n order by n.id desc limit 1;
  select s.last_value into reached from cnapi_event_outbox_id_seq s;
  ended_below := pg_snapshot_xmin(pg_current_snapshot())::text::bigint;
  log.hole_mark := array(
    select least(h.mark, pg_current_xact_id()::text::bigint)
      from unnest(log.hole_mark) with ordinality as h (mark, n) order by h.n);
  with waiting as (
    select o.* from unnest(log.hole_from, log.hole_to) as h (first, last)
      join cnapi_event_outbox o on o.id between h.first and h.last
    union all
    (select o.* from cnapi_event_outbox o where o.id > log.read_id order by o.id limit p_most)
  ), taken as (
    select w.* from waiting w order by w.id limit p_most
  ), added as (
    insert into cnapi_events (id, kind, server_uuid, stored_at, body)
      select log.last_id + row_number() over (order by t.id), t.kind, t.server_uuid, t.stored_at,
          t.body
        from taken t
      returning stored_at
  )
  select count(*), moment - (select min(a.stored_at) from added a),
      coalesce(array_agg(t.id order by t.id), '{}')
    into moved, waited, moved_ids from taken t;
  read_to := greatest(log.read_id, moved_ids[moved]);
  select coalesce(array_agg(g.before + 1 order by g.id), '{}'),
      coalesce(array_agg(g.id - 1 order by g.id), '{}'),
      coalesce(array_agg(g.mark order by g.id), '{}')
    into log.hole_from, log.hole_to, log.hole_mark
    from (
      select r.mark, p.id, lag(p.id) over (partition by r.first order by p.id) as before
        from (
          select h.first, h.last, h.mark
            from unnest(log.hole_from, log.hole_to, log.hole_mark) as h (first, last, mark)
            -- One whose rows did not all fit is looked at again.
            where h.mark > ended_below or moved = p_most
          union all
          -- Without a mark yet.
          select log.read_id + 1, read_to, 9223372036854775807 where read_to > log.read_id
        ) as r
        cross join lateral (
          select r.first - 1 as id union all select r.last + 1
          union all
          select m.id from unnest(moved_ids) as m (id) where m.id between r.first and r.last
        ) as p
    ) as g where g.id - g.before > 1;
  log.last_id := log.last_id + moved;
  log.read_id := read_to;
  delete from cnapi_event_outbox o where o.id = any (moved_ids) and o.id <= log.dropped_id;
  if read_to >= log.dropped_id + 1000 then
    delete from cnapi_event_outbox o where o.id > log.dropped_id and o.id <= read_to
      and not exists (
        select 1 from unnest(log.hole_from, log.hole_to) as h (first, last)
          where o.id between h.first and h.last);
    log.dropped_id := read_to;
  end if;
  if moved < p_most then
    perform setval('cnapi_event_moved_seq', reached);
    with said as (delete from cnapi_event_misses returning since)
    select min(s.since) into missed_since from said s;
    if missed_since is not null then
      log.gap_since := missed_since;
      log.gap_mark := 9223372036854775807;
    elsif log.gap_mark is not null then
      log.gap_mark := least(log.gap_mark, pg_current_xact_id()::text::bigint);
      if log.gap_mark <= ended_below then
        missed_since := log.gap_since;
        log.gap_mark := null;
      end if;
    end if;
    if missed_since is not null then
      log.last_id := log.last_id + 1;
      insert into cnapi_events (id, kind, stored_at, body)
        values (log.last_id, 'gap', moment, jsonb_build_object('message', format(
          'No instance kept the log of events in time: changes since %s may be missing, up to now',
          to_char(missed_since at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))));
    end if;
  else
    perform setval('cnapi_event_moved_seq', read_to);
  end if;
  log.id := log.id + 1;
  insert into cnapi_event_numberings select log.*;
  if log.id % 100 = 0 then
    delete from cnapi_event_numberings n where n.id between log.id - 300 and log.id - 100;
  end if;
  return query
    select moved, log.last_id, coalesce(extract(epoch from waited) * 1000, 0)::bigint;
end $$;
