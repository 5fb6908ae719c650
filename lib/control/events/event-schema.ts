/**
 * The log of events, which the database itself keeps. Triggers record each change in the
 * transaction that makes it, also for an instance of an earlier version. So no event exists without
 * its change, and no change is lost when an instance dies. Recorded changes wait in
 * `cnapi_event_outbox`; `cnapi_number_events` moves them to `cnapi_events`.
 *
 * There are two steps because readers ask for events above the last id they have, and ids taken
 * inside transactions are not in commit order. A change that is committed later is found in the
 * outbox later, and numbers are given under the lock of one row (law 5). The outbox has the changes
 * of one object in order: the object's row is locked when the id is taken.
 *
 * The gap that informs readers of missing changes comes after all changes that had waited. The
 * missing changes are younger. A reader that reads the whole state again at the gap must not
 * receive older changes afterwards. Ids in `cnapi_events` have no holes.
 */
import type { Migration } from '../../platform/postgres/migrations.ts';
import {
  firstBound,
  firstInstance,
  firstLog,
  firstNumbering,
  firstStatus,
  firstTask,
  firstTicket,
} from './event-history.ts';

/**
 * The maximum length of the outbox while no instance numbers it because all are of a version before
 * events.
 */
export const OUTBOX_BOUND = 100_000;

/**
 * What the numbering has read, one row for each time. Rows are only inserted, and read from the
 * end, so dead rows do not slow it down while a transaction keeps an old snapshot (a dump does so
 * for hours). For the same reason rows of the outbox are read by position and deleted later, at
 * least a thousand at once, at the end that nobody reads.
 *
 * `read_id`: the outbox is read up to here, except for the holes: ranges of ids that did not exist
 * when their neighbours were read. The transaction that took such an id is still running or was
 * rolled back. It had begun when the hole was found, so it is below `hole_mark`, a transaction id
 * that was assigned later. Once all transactions below that mark have ended, the hole stays empty.
 *
 * `dropped_id`: the outbox is deleted up to here. `cnapi_event_moved_seq` holds the position up to
 * which the outbox is read, for the bound on its length. Triggers read it for each change, and a
 * sequence has no dead rows. Nothing depends on its being exact. Sequential scans are off, because
 * the planner would choose one for a small table, and it reads all dead rows.
 */
const positions = `
create sequence cnapi_event_moved_seq minvalue -1000000000;
create table cnapi_event_numberings (
  id bigint primary key,
  last_id bigint not null,
  read_id bigint not null,
  dropped_id bigint not null,
  hole_from bigint[] not null default '{}',
  hole_to bigint[] not null default '{}',
  hole_mark bigint[] not null default '{}'
);
select 1 from cnapi_event_log for update;
insert into cnapi_event_numberings (id, last_id, read_id, dropped_id, hole_from, hole_to, hole_mark)
  select 1, l.last_id, p.read_id, p.read_id, array[greatest(1, p.read_id - 9999)], array[p.read_id],
    array[pg_snapshot_xmax(pg_current_snapshot())::text::bigint]
  from cnapi_event_log l, cnapi_event_outbox_id_seq s,
    lateral (select coalesce((select min(o.id) from cnapi_event_outbox o), s.last_value + s.is_called::int) - 1 as read_id) p;
select setval('cnapi_event_moved_seq', moved_id) from cnapi_event_log;

create or replace function cnapi_number_events(p_most int) returns table (numbered int, last_id bigint, waited_ms bigint)
language plpgsql volatile set enable_seqscan = off as $$
#variable_conflict use_column
declare
  log cnapi_event_numberings;
  moment timestamptz;
  ended_below bigint;
  begun_below bigint;
  reached bigint;
  read_to bigint;
  moved_ids bigint[];
  moved int;
  waited interval;
  missed_since timestamptz;
begin
  select * into log from cnapi_event_numberings n order by n.id desc limit 1;
  if cardinality(log.hole_from) = 0 and not exists (select 1 from cnapi_event_outbox o where o.id > log.read_id)
    and not exists (select 1 from cnapi_event_misses) then
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
  with waiting as (
    select o.* from unnest(log.hole_from, log.hole_to) as h (first, last)
      join cnapi_event_outbox o on o.id between h.first and h.last
    union all
    (select o.* from cnapi_event_outbox o where o.id > log.read_id order by o.id limit p_most)
  ), taken as (
    select w.* from waiting w order by w.id limit p_most
  ), added as (
    insert into cnapi_events (id, kind, server_uuid, stored_at, body)
      select log.last_id + row_number() over (order by t.id), t.kind, t.server_uuid, t.stored_at, t.body from taken t
      returning stored_at
  )
  select count(*), moment - (select min(a.stored_at) from added a), coalesce(array_agg(t.id order by t.id), '{}')
    into moved, waited, moved_ids from taken t;
  begun_below := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
  read_to := greatest(log.read_id, moved_ids[moved]);
  select coalesce(array_agg(g.before + 1 order by g.id), '{}'), coalesce(array_agg(g.id - 1 order by g.id), '{}'),
      coalesce(array_agg(g.mark order by g.id), '{}')
    into log.hole_from, log.hole_to, log.hole_mark
    from (
      select r.mark, p.id, lag(p.id) over (partition by r.first order by p.id) as before
        from (
          select h.first, h.last, h.mark from unnest(log.hole_from, log.hole_to, log.hole_mark) as h (first, last, mark)
            -- One whose rows did not all fit is looked at again.
            where h.mark > ended_below or moved = p_most
          union all
          select log.read_id + 1, read_to, begun_below where read_to > log.read_id
        ) as r
        cross join lateral (
          select r.first - 1 as id union all select r.last + 1
          union all select m.id from unnest(moved_ids) as m (id) where m.id between r.first and r.last
        ) as p
    ) as g where g.id - g.before > 1;
  log.last_id := log.last_id + moved;
  log.read_id := read_to;
  delete from cnapi_event_outbox o where o.id = any (moved_ids) and o.id <= log.dropped_id;
  if read_to >= log.dropped_id + 1000 then
    delete from cnapi_event_outbox o where o.id > log.dropped_id and o.id <= read_to
      and not exists (select 1 from unnest(log.hole_from, log.hole_to) as h (first, last) where o.id between h.first and h.last);
    log.dropped_id := read_to;
  end if;
  if moved < p_most then
    perform setval('cnapi_event_moved_seq', reached);
    with said as (delete from cnapi_event_misses returning since)
    select min(s.since) into missed_since from said s;
    if missed_since is not null then
      log.last_id := log.last_id + 1;
      insert into cnapi_events (id, kind, stored_at, body) values (log.last_id, 'gap', moment, jsonb_build_object('message',
        format('No instance kept the log of events in time: changes since %s may be missing, up to now',
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
  return query select moved, log.last_id, coalesce(extract(epoch from waited) * 1000, 0)::bigint;
end $$;
`;

/**
 * The first version forgot a hole too early. It took the end of its snapshot (`pg_snapshot_xmax`)
 * for a transaction id that had not been assigned, but the newest running transactions may be above
 * it. Now a hole gets its mark at the next numbering, whose own transaction id is above that of
 * every transaction that was running when the hole was found.
 */
const numberingWithMarks = positions
  .slice(positions.indexOf('create or replace function cnapi_number_events'))
  .replace(
    '  with waiting as (',
    `  log.hole_mark := array(
    select least(h.mark, pg_current_xact_id()::text::bigint) from unnest(log.hole_mark) with ordinality as h (mark, n) order by h.n);
  with waiting as (`,
  )
  .replace(
    'begun_below := pg_snapshot_xmax(pg_current_snapshot())::text::bigint',
    'begun_below := 9223372036854775807',
  );

/**
 * One gap event is not enough. A transaction that finds the outbox full, and a miss already
 * recorded, records none itself. If it commits after the gap event, its change is never recorded,
 * and a reader that read the whole state at the gap has read it before that commit. So the gap
 * event is repeated when all transactions that ran then have ended; later ones find room in the
 * outbox. A single late gap event is no solution, because a transaction may run for hours.
 * `gap_mark` is set as the mark of a hole is.
 */
const numberingWithSecondGap =
  `
alter table cnapi_event_numberings add column gap_since timestamptz, add column gap_mark bigint;
` +
  numberingWithMarks
    .replace(
      'and not exists (select 1 from cnapi_event_misses) then',
      'and not exists (select 1 from cnapi_event_misses) and log.gap_mark is null then',
    )
    .replace(
      '    if missed_since is not null then\n',
      `    if missed_since is not null then
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
`,
    );

/**
 * One row for each removal of old events: all events up to `up_to` are deleted. Rows are only
 * inserted, and read from the end. An instance of an earlier version removes events without adding
 * a row, so the value is a lower bound.
 */
const trims = 'create table cnapi_event_trims (up_to bigint primary key)';

interface EventSql {
  server: string;
  /** The time of the change itself, if it has one, so that no further clock is read. */
  at: string;
  body: string;
}

/** By kind. */
const EVENT_SQL: Readonly<Record<string, EventSql>> = {
  /** The roster's own trigger writes a row of history for each change. */
  status: {
    server: 'new.server_uuid::text',
    at: 'new.since',
    body: `jsonb_build_object('server_uuid', new.server_uuid, 'status', new.status, 'previous', new.previous,
        'reason', new.reason, 'cnapi_uuid', new.cnapi_uuid, 'epoch', new.epoch)`,
  },
  task: {
    server: 'new.server_uuid::text',
    at: `(case new.state when 'queued' then new.queued_at when 'claimed' then new.claimed_at else new.ended_at end)`,
    body: `jsonb_build_object('id', new.id, 'server_uuid', new.server_uuid, 'task', new.name,
        'status', case new.state when 'claimed' then 'active' when 'ended' then new.outcome else 'queued' end,
        'attempt', new.attempt)`,
  },
  ticket: {
    server: 'new.server_uuid',
    at: 'new.updated_at',
    body: `jsonb_build_object('uuid', new.uuid, 'server_uuid', new.server_uuid, 'scope', new.scope, 'id', new.id,
        'status', new.status)`,
  },
  /** The deletion of a ticket that had already ended, also by housekeeping, is not a change. */
  ticket_deleted: {
    server: 'old.server_uuid',
    at: 'cnapi_now()',
    body: `jsonb_build_object('uuid', old.uuid, 'server_uuid', old.server_uuid, 'scope', old.scope, 'id', old.id,
        'status', 'deleted')`,
  },
  /** A renewed run is live from now on, although its instance started long ago. */
  instance: {
    server: 'null',
    at: `coalesce(new.ended_at, new.draining_since, cnapi_now())`,
    body: `jsonb_build_object('uuid', new.cnapi_uuid, 'run', new.run, 'url', new.url, 'version', new.version,
        'state', case when new.state = 'dead' then new.end_reason when new.draining_since is not null then 'draining'
          else 'live' end)`,
  },
};

/** Where the triggers read the position up to which the outbox is read. */
type ReadTo = 'cnapi_event_log l, moved_id' | 'cnapi_event_moved_seq l, last_value';

/**
 * The trigger functions. They take no lock that other transactions wait for, and fail only if the
 * database does.
 */
function createTriggers(readTo: ReadTo): string {
  const [table, column] = readTo.split(', ');
  return Object.entries(EVENT_SQL)
    .map(
      ([kind, { server, at, body }]) => `
create or replace function cnapi_tell_${kind}() returns trigger language plpgsql as $$
begin
  insert into cnapi_event_outbox (kind, server_uuid, stored_at, body)
    select '${kind.replace('_deleted', '')}', ${server}, ${at}, ${body}
      from ${table}, cnapi_event_outbox_id_seq s where s.last_value < l.${column} + ${OUTBOX_BOUND};
  if not found then
    insert into cnapi_event_misses (since) select cnapi_now() where not exists (select 1 from cnapi_event_misses);
  end if;
  return null;
end $$;
`,
    )
    .join('');
}

export const eventMigrations: Migration[] = [
  { number: 80, name: 'log of events', sql: firstLog },
  { number: 81, name: 'changes are told as events', sql: firstStatus + firstTask + firstTicket + firstInstance },
  {
    number: 82,
    name: 'the outbox of events is bounded by length',
    sql: firstBound + createTriggers('cnapi_event_log l, moved_id'),
  },
  { number: 83, name: 'a gap is told after what had waited', sql: firstNumbering },
  {
    number: 151,
    name: 'the outbox of events is read by position',
    sql: positions + createTriggers('cnapi_event_moved_seq l, last_value'),
  },
  { number: 155, name: 'holes in the outbox are kept until who took them has ended', sql: numberingWithMarks },
  { number: 156, name: 'removals from the log of events', sql: trims },
  { number: 181, name: 'a gap is said again', sql: numberingWithSecondGap },
  // Without sequential scans a query costs so much by the planner's estimate that Postgres before 18
  // compiles it each time: a numbering took 400 ms instead of 10.
  { number: 201, name: 'numbering is not compiled', sql: 'alter function cnapi_number_events(int) set jit = off' },
];
