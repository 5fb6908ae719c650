/** The statements over the log of events. The database itself fills the log (`migrations`). */
import type { Queryable } from '../../platform/postgres/database.ts';
import type { EventFilter, LoggedEvent, LogState, Position } from './event.ts';

/**
 * All events up to this id are known to be deleted. The search for the oldest event begins after
 * it: while a transaction keeps an old snapshot, the index keeps the entries of all deleted rows.
 */
const TRIMMED = 'coalesce((select max(up_to) from cnapi_event_trims), 0)';

/**
 * Deletes the events in `picked` and records the removal. Deletes the rows of earlier removals
 * where nobody reads them.
 */
const REMOVAL = `gone as (
       delete from cnapi_events where id in (select id from picked) returning id
     ), said as (
       insert into cnapi_event_trims (up_to) select max(id) from gone having count(*) > 0 on conflict (up_to) do nothing
     ), outdated as (
       delete from cnapi_event_trims where up_to between ${TRIMMED} - 300 * $2::bigint and ${TRIMMED} - 100 * $2::bigint
     )
     select count(*)::int as count from gone`;

interface Numbered {
  /** How many events this call moved from the outbox. */
  numbered: number;
  /** The id of the log's last event. */
  last: number;
  /** How long the oldest of them had waited in the outbox. */
  waitedMs: number;
}

/**
 * Moves at most `limit` recorded changes to the log. Does not wait for another instance that is
 * doing so.
 */
export async function numberEvents(database: Queryable, limit: number): Promise<Numbered> {
  const { rows } = await database.query<Numbered>(
    'select numbered, last_id as last, waited_ms as "waitedMs" from cnapi_number_events($1::int)',
    [limit],
    { name: 'number events' },
  );
  return rows[0] as Numbered;
}

/** The range of the log, and when the event with this id was stored. */
export async function readLog(database: Queryable, id: number): Promise<LogState> {
  const { rows } = await database.query<LogRow>(
    `select last_id as last, coalesce((select min(id) from cnapi_events where id > ${TRIMMED}), last_id + 1) as oldest,
       (select stored_at from cnapi_events where id = $1::bigint) as stored_at
     from cnapi_event_numberings order by id desc limit 1`,
    [id],
  );
  const { last, oldest, stored_at } = rows[0] as LogRow;
  return { last, oldest, storedAt: stored_at ?? undefined };
}

/**
 * The position in the log `msAgo` milliseconds ago: after all events that had been stored by then.
 */
export async function readPositionAt(database: Queryable, msAgo: number): Promise<Position> {
  const { rows } = await database.query<{ id: number; stored_at: Date | null }>(
    `select coalesce(e.id, o.before, n.last_id) as id, e.stored_at
       from (select last_id from cnapi_event_numberings order by id desc limit 1) as n
       left join lateral (
         select id, stored_at from cnapi_events
           where id > ${TRIMMED} and stored_at < cnapi_now() - $1::float8 * interval '1 millisecond' order by id desc limit 1
       ) as e on true
       left join lateral (select min(id) - 1 as before from cnapi_events where id > ${TRIMMED}) as o on true`,
    [msAgo],
  );
  const { id, stored_at } = rows[0] as { id: number; stored_at: Date | null };
  return { id, storedAtMs: stored_at?.getTime() ?? 0 };
}

/** Both ends are included. */
interface EventRange {
  from: number;
  upTo: number;
  limit: number;
}

/**
 * The stored events of the range that match the filter, in order. Gaps and both ends of the range
 * are always included. From the first one, the reader sees in the same statement that this is still
 * the log that it has read so far; the last one serves the next read in the same way.
 */
export async function readEventPage(
  database: Queryable,
  { kinds, serverUuid }: EventFilter,
  { from, upTo, limit }: EventRange,
): Promise<LoggedEvent[]> {
  const { rows } = await database.query<StoredEvent>(
    `select id, kind, server_uuid, stored_at, body from cnapi_events
     where id >= $1::bigint and id <= $2::bigint
       and (id in ($1::bigint, $2::bigint) or kind = 'gap' or (($3::text[] is null or kind = any ($3::text[])) and ($4::text is null or server_uuid = $4::text)))
     order by id limit $5::int`,
    [from, upTo, kinds === undefined ? null : [...kinds], serverUuid ?? null, limit],
    { name: 'read a range of events' },
  );
  return rows.map(({ server_uuid, stored_at, ...row }) => ({ ...row, serverUuid: server_uuid, storedAt: stored_at }));
}

/**
 * Deletes the oldest events, at most `limit`, so that `keep` of them remain. Returns how many it
 * deleted. It always deletes a prefix, so the oldest remaining event shows what is missing;
 * therefore it waits for other deletions.
 */
export async function deleteSurplusEvents(database: Queryable, keep: number, limit: number): Promise<number> {
  const { rows } = await database.query<{ count: number }>(
    `with picked as (
       select id from cnapi_events
         where id > ${TRIMMED} and id <= (select last_id from cnapi_event_numberings order by id desc limit 1) - $1::bigint
         order by id limit $2::int for update
     ), ${REMOVAL}`,
    [keep, limit],
  );
  return (rows[0] as { count: number }).count;
}

/**
 * Deletes the oldest events, at most `limit`, up to the first one that is not older than `days`.
 * Returns how many it deleted.
 */
export async function deleteOldEvents(database: Queryable, days: number, limit: number): Promise<number> {
  const { rows } = await database.query<{ count: number }>(
    `with first as materialized (
       select id, stored_at from cnapi_events where id > ${TRIMMED} order by id limit $2::int
     ), picked as (
       select id from cnapi_events
         where id > ${TRIMMED} and id < coalesce(
           (select min(id) from first where stored_at >= cnapi_now() - make_interval(days => $1::int)),
           (select max(id) + 1 from first))
         order by id for update
     ), ${REMOVAL}`,
    [days, limit],
  );
  return (rows[0] as { count: number }).count;
}

/** The log has such a row from its first migration on. */
interface LogRow {
  last: number;
  oldest: number;
  stored_at: Date | null;
}

interface StoredEvent extends Omit<LoggedEvent, 'serverUuid' | 'storedAt'> {
  server_uuid: string | null;
  stored_at: Date;
}
