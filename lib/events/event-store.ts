/** The statements over the log of events; how it is filled is the database's own (`event-schema.ts`). */
import type { Queryable } from '../moray/database.ts';
import type { EventFilter, LoggedEvent, LogState } from './event.ts';

export interface Numbered {
  /** How many events were moved from the outbox by this call. */
  numbered: number;
  /** The log's last event. */
  last: number;
  /** How long the one of them that had waited longest had been in the outbox. */
  waitedMs: number;
}

/** Moves at most `limit` told changes to the log. Another instance that does so just now is not waited for. */
export async function numberEvents(database: Queryable, limit: number): Promise<Numbered> {
  const { rows } = await database.query<Numbered>(
    'select numbered, last_id as last, waited_ms as "waitedMs" from cnapi_number_events($1::int)',
    [limit],
    { name: 'number events' },
  );
  return rows[0] ?? { numbered: 0, last: 0, waitedMs: 0 };
}

/** What the log holds, and when the event with this id was stored. */
export async function readLog(database: Queryable, id: number): Promise<LogState> {
  const { rows } = await database.query<{ last: number; oldest: number; stored_at: Date | null }>(
    `select last_id as last, coalesce((select min(id) from cnapi_events), last_id + 1) as oldest,
       (select stored_at from cnapi_events where id = $1::bigint) as stored_at
     from cnapi_event_log`,
    [id],
  );
  const { last = 0, oldest = 1, stored_at = null } = rows[0] ?? {};
  return { last, oldest, storedAt: stored_at ?? undefined };
}

/** Both included. */
export interface EventRange {
  from: number;
  upTo: number;
  limit: number;
}

/**
 * In order, those of the range that are wanted and kept. Gaps always, and the range's two ends, wanted or not: by the first one
 * a reader sees, in the same look, that this is still the log that it has read so far; by the last one it will see so next time.
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
 * What goes is always a prefix, so that the oldest one says what is missing: whoever else deletes just now is waited for.
 * Deletes the oldest events, at most `limit`, of those that are above `keep` in number. Returns how many went.
 */
export async function trimEvents(database: Queryable, keep: number, limit: number): Promise<number> {
  const { rowCount } = await database.query(
    `delete from cnapi_events where id in (
       select id from cnapi_events where id <= (select last_id from cnapi_event_log) - $1::bigint
       order by id limit $2::int for update)`,
    [keep, limit],
  );
  return rowCount;
}

/** Deletes the oldest events, at most `limit`, up to the first one that is not older than `days`. Returns how many went. */
export async function forgetEvents(database: Queryable, days: number, limit: number): Promise<number> {
  const { rowCount } = await database.query(
    `delete from cnapi_events where id in (
       select id from cnapi_events
       where id < coalesce(
         (select min(first.id) from (select id, stored_at from cnapi_events order by id limit $2::int) as first
           where first.stored_at >= cnapi_now() - make_interval(days => $1::int)),
         (select max(first.id) + 1 from (select id from cnapi_events order by id limit $2::int) as first))
       order by id for update)`,
    [days, limit],
  );
  return rowCount;
}

interface StoredEvent extends Omit<LoggedEvent, 'serverUuid' | 'storedAt'> {
  server_uuid: string | null;
  stored_at: Date;
}
