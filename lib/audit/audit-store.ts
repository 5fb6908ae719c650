/** SQL of the audit. Rows are written in sets; one statement each, whatever their number. */
import type { Queryable } from '../moray/database.ts';

export interface AuditStart {
  /** Names it among those written with it. */
  key: string;
  actor: string;
  roles: readonly string[];
  tokenUuid: string | undefined;
  /** The route's name, as the OpenAPI document has it. */
  action: string;
  method: string;
  path: string;
  serverUuid: string | undefined;
  object: string | undefined;
  requestId: string;
  source: string;
  instance: string;
}

export interface AuditEnd {
  id: number;
  status: number;
  /** Of the error, if it is one. */
  code: string | undefined;
  object: string | undefined;
}

/** As GET /audit has it. */
export interface AuditRecord {
  id: number;
  time: string;
  actor: string;
  roles: string[];
  token_uuid: string | null;
  action: string;
  method: string;
  path: string;
  server_uuid: string | null;
  object: string | null;
  request_id: string;
  source: string;
  instance: string;
  /** Null while it goes on, or when its instance died meanwhile. */
  status: number | null;
  code: string | null;
  ended_at: string | null;
}

export interface AuditFilter {
  actor?: string | undefined;
  action?: string | undefined;
  serverUuid?: string | undefined;
  object?: string | undefined;
  requestId?: string | undefined;
  /** ISO 8601, the database's clock. */
  since?: string | undefined;
  until?: string | undefined;
  /** Only older ones than this id. */
  before?: number | undefined;
  limit: number;
}

/** Returns the ids by key. */
export async function insertStarts(database: Queryable, starts: readonly AuditStart[]): Promise<Map<string, number>> {
  const { rows } = await database.query<{ key: string; id: number }>(
    `with given as (
       select nextval(pg_get_serial_sequence('cnapi_audit', 'id')) as id, start.*
       from unnest($1::text[], $2::text[], $3::text[], $4::uuid[], $5::text[], $6::text[], $7::text[], $8::uuid[], $9::text[],
         $10::text[], $11::text[], $12::uuid[])
         start (key, actor, roles, token_uuid, action, method, path, server_uuid, object, request_id, source, instance)
     ), kept as (
       insert into cnapi_audit (id, actor, roles, token_uuid, action, method, path, server_uuid, object, request_id, source, instance)
       overriding system value
       select id, actor, string_to_array(roles, ','), token_uuid, action, method, path, server_uuid, object, request_id, source,
         instance
       from given
     )
     select key, id from given`,
    [
      starts.map(({ key }) => key),
      starts.map(({ actor }) => actor),
      starts.map(({ roles }) => roles.join(',')),
      starts.map(({ tokenUuid }) => tokenUuid ?? null),
      starts.map(({ action }) => action),
      starts.map(({ method }) => method),
      starts.map(({ path }) => path),
      starts.map(({ serverUuid }) => serverUuid ?? null),
      starts.map(({ object }) => object ?? null),
      starts.map(({ requestId }) => requestId),
      starts.map(({ source }) => source),
      starts.map(({ instance }) => instance),
    ],
  );
  return new Map(rows.map(({ key, id }) => [key, id]));
}

/** Each row gets one outcome; the first stays. */
export async function recordEnds(database: Queryable, ends: readonly AuditEnd[]): Promise<void> {
  await database.query(
    `update cnapi_audit audit
     set status = done.status, code = done.code, object = coalesce(done.object, audit.object), ended_at = cnapi_now()
     from unnest($1::bigint[], $2::int[], $3::text[], $4::text[]) done (id, status, code, object)
     where audit.id = done.id and audit.status is null`,
    [
      ends.map(({ id }) => id),
      ends.map(({ status }) => status),
      ends.map(({ code }) => code ?? null),
      ends.map(({ object }) => object ?? null),
    ],
  );
}

/** Newest first. */
export async function listAudit(database: Queryable, filter: AuditFilter): Promise<AuditRecord[]> {
  const { rows } = await database.query<Omit<AuditRecord, 'time' | 'ended_at'> & { time: Date; ended_at: Date | null }>(
    `select id, time, actor, roles, token_uuid, action, method, path, server_uuid, object, request_id, source, instance, status,
       code, ended_at
     from cnapi_audit
     where ($1::text is null or actor = $1) and ($2::text is null or action = $2) and ($3::uuid is null or server_uuid = $3)
       and ($4::text is null or object = $4) and ($5::text is null or request_id = $5)
       and ($6::timestamptz is null or time >= $6) and ($7::timestamptz is null or time < $7)
       and ($8::bigint is null or id < $8)
     order by id desc limit $9::int`,
    [
      filter.actor ?? null,
      filter.action ?? null,
      filter.serverUuid ?? null,
      filter.object ?? null,
      filter.requestId ?? null,
      filter.since ?? null,
      filter.until ?? null,
      filter.before ?? null,
      filter.limit,
    ],
  );
  return rows.map((row) => ({ ...row, time: row.time.toISOString(), ended_at: row.ended_at?.toISOString() ?? null }));
}

/** Deletes at most `limit` that are older than `days`. */
export async function forgetAudit(database: Queryable, days: number, limit: number): Promise<number> {
  const { rowCount } = await database.query(
    `delete from cnapi_audit where id in (
       select id from cnapi_audit where time < cnapi_now() - make_interval(days => $1::int)
       order by time limit $2::int for update skip locked)`,
    [days, limit],
  );
  return rowCount;
}
