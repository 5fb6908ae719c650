/** SQL of the audit. Rows are written in sets, with one statement for any number of them. */
import type { Queryable } from '../../platform/postgres/database.ts';
import type { AuditRecord } from '../../protocol/api/audit.ts';
import type { AuditRecordPart, ExpiryPart } from '../audit-part.ts';

export interface AuditStart {
  /** The record's own uuid. */
  key: string;
  actor: string;
  roles: readonly string[];
  tokenUuid: string | undefined;
  /** The name of the route in the OpenAPI document. */
  action: string;
  method: string;
  path: string;
  serverUuid: string | undefined;
  object: string | undefined;
  requestId: string;
  source: string;
  instance: string;
}

export interface AuditOutcome {
  status: number;
  /** The error's code, if it is an error. */
  code: string | undefined;
  object: string | undefined;
}

/** The outcome for the record with this request and key. */
export interface AuditEnd extends AuditOutcome, Pick<AuditStart, 'requestId' | 'key'> {}

/**
 * A request that was refused before it began, or one whose `begin` got no answer from the database.
 */
export interface AuditRefusal {
  start: AuditStart;
  outcome: AuditOutcome;
}

export interface AuditFilter {
  actor?: string | undefined;
  action?: string | undefined;
  serverUuid?: string | undefined;
  object?: string | undefined;
  /** The beginning of the object's id. */
  objectPrefix?: string | undefined;
  requestId?: string | undefined;
  /** ISO 8601, the database's clock. */
  since?: string | undefined;
  until?: string | undefined;
  /** Only records with a lower id. */
  before?: number | undefined;
  limit: number;
  /** A page ends with the record that reaches this size; AUDIT_PAGE_BYTES when absent. */
  bytes?: number | undefined;
}

export const AUDIT_PAGE_BYTES = 4 * 1024 * 1024;

const COLUMNS = `key, actor, roles, token_uuid, action, method, path, server_uuid, object, request_id, source, instance`;
const PARAMETERS = `$1::uuid[], $2::text[], $3::text[], $4::uuid[], $5::text[], $6::text[], $7::text[], $8::uuid[], $9::text[], $10::text[],
  $11::text[], $12::uuid[]`;
const VALUES = COLUMNS.replace('roles', `string_to_array(roles, ',')`);

/** Repeating it is harmless. */
export async function insertStarts(database: Queryable, starts: readonly AuditStart[]): Promise<void> {
  await database.query(
    `insert into cnapi_audit (${COLUMNS})
     select ${VALUES} from unnest(${PARAMETERS}) start (${COLUMNS})
     on conflict (request_id, key) do nothing`,
    given(starts),
    // Every change waits for it; to plan it takes longer than to run it.
    { name: 'begin audit' },
  );
}

/** Inserts one record as a part of the statement that makes the change, and so in its commit. */
export function startPart(start: AuditStart): AuditRecordPart {
  return (parameters, details = 'null', servers = 'null', changed = '') => {
    const values = [
      parameters.add(start.key, 'uuid'),
      parameters.add(start.actor, 'text'),
      parameters.add([...start.roles], 'text[]'),
      parameters.add(start.tokenUuid ?? null, 'uuid'),
      parameters.add(start.action, 'text'),
      parameters.add(start.method, 'text'),
      parameters.add(start.path, 'text'),
      parameters.add(start.serverUuid ?? null, 'uuid'),
      parameters.add(start.object ?? null, 'text'),
      parameters.add(start.requestId, 'text'),
      parameters.add(start.source, 'text'),
      parameters.add(start.instance, 'uuid'),
    ];
    const from = changed === '' ? '' : `from ${changed}`;
    // A statement that is tried again, because what it changes was changed, may have other details.
    return `insert into cnapi_audit (${COLUMNS}, details, servers) select ${values.join(', ')}, ${details}, ${servers} ${from}
      on conflict (request_id, key) do update set details = excluded.details, servers = excluded.servers`;
  };
}

/** Objects that cnapi itself deletes because of their age. */
interface AuditedExpiry {
  /** The action that is recorded when a caller deletes such an object. */
  action: string;
  /** The path of that request, up to the object's id. */
  path: string;
  instance: string;
}

/**
 * Inserts the records of what a statement deletes. `rows`: the name of a part with `id` and
 * `details`.
 */
export function expiryPart({ action, path, instance }: AuditedExpiry): ExpiryPart {
  return (parameters, rows) =>
    `insert into cnapi_audit (${COLUMNS}, status, ended_at, details)
       select gen_random_uuid(), 'expiry', '{}'::text[], null::uuid, ${parameters.add(action, 'text')}, 'DELETE',
         ${parameters.add(path, 'text')} || gone.id, null::uuid, gone.id::text, gen_random_uuid()::text, '',
         ${parameters.add(instance, 'uuid')}, 204, cnapi_now(), gone.details
       from ${rows} gone`;
}

/**
 * Inserts records with their outcomes. Repeating it is harmless: a record that exists is kept, and
 * so is its first outcome.
 */
export async function insertRefusals(database: Queryable, refusals: readonly AuditRefusal[]): Promise<void> {
  const outcomes = refusals.map(({ outcome }) => outcome);
  await database.query(
    `insert into cnapi_audit as audit (${COLUMNS}, status, code, ended_at)
     select ${VALUES}, status, code, cnapi_now()
     from unnest(${PARAMETERS}, $13::int[], $14::text[]) refused (${COLUMNS}, status, code)
     on conflict (request_id, key) do update set status = excluded.status, code = excluded.code, ended_at = excluded.ended_at
       where audit.status is null`,
    [
      ...given(refusals.map(({ start }) => start)),
      outcomes.map(({ status }) => status),
      outcomes.map(({ code }) => code ?? null),
    ],
  );
}

function given(starts: readonly AuditStart[]): unknown[] {
  return [
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
  ];
}

/** Each row gets one outcome; the first one stays. */
export async function recordEnds(database: Queryable, ends: readonly AuditEnd[]): Promise<void> {
  await database.query(
    `update cnapi_audit audit
     set status = done.status, code = done.code, object = coalesce(done.object, audit.object), ended_at = cnapi_now()
     from unnest($1::text[], $2::uuid[], $3::int[], $4::text[], $5::text[]) done (request_id, key, status, code, object)
     where audit.request_id = done.request_id and audit.key = done.key and audit.status is null`,
    [
      ends.map(({ requestId }) => requestId),
      ends.map(({ key }) => key),
      ends.map(({ status }) => status),
      ends.map(({ code }) => code ?? null),
      ends.map(({ object }) => object ?? null),
    ],
  );
}

/** A record of the audit as it is stored. */
export interface AuditRow extends Omit<AuditRecord, 'time' | 'ended_at' | 'details'> {
  time: Date;
  ended_at: Date | null;
  details: NonNullable<AuditRecord['details']> | null;
}

const SHOWN = `id, time, actor, roles, token_uuid, action, method, path, server_uuid, object, request_id, source, instance, status,
       code, ended_at, details`;

const recordsOf = (source: string, where: string): string => `
  select ${SHOWN} from ${source}
    where ($1::text is null or actor = $1) and ($2::text is null or action = $2) and ${where}
      and ($4::text is null or object = $4) and ($5::text is null or request_id = $5)
      and ($6::timestamptz is null or time >= $6) and ($7::timestamptz is null or time < $7)
      and ($8::bigint is null or id < $8) and ($9::text is null or starts_with(object, $9))
    order by id desc limit $10::int`;

/**
 * The records about one server: those about it alone, read in the order of their index, so that
 * only a page is read; and those about several servers, all of which are read by another index.
 */
const OF_SERVER = `
  with several as materialized (
    select * from cnapi_audit where servers @> array[$3::uuid] and server_uuid is distinct from $3::uuid
  )
  select ${SHOWN} from (
    (${recordsOf('cnapi_audit', 'server_uuid = $3::uuid')}) union all (${recordsOf('several', 'true')})
  ) found order by id desc limit $10::int`;

/** The size of a record as JSON: its unbounded columns, and about 600 bytes for the others. */
const BYTES = `octet_length(coalesce(details::text, '')) + octet_length(path) + octet_length(coalesce(object, '')) + 600`;

/** Only the first records, as many as have these bytes together, but at least one. */
const firstOf = (records: string): string => `
  select ${SHOWN} from (
    select *, sum(bytes) over (order by id desc) - bytes as bytes_before
      from (select *, ${BYTES} as bytes from (${records}) found) sized
  ) page where bytes_before < $11::int order by id desc`;

/**
 * Newest first. The page ends before `limit` if its records are large; the next one begins before
 * the id of its last record.
 */
export async function listAudit(database: Queryable, filter: AuditFilter): Promise<AuditRow[]> {
  const { rows } = await database.query<AuditRow>(
    firstOf(filter.serverUuid === undefined ? recordsOf('cnapi_audit', '$3::uuid is null') : OF_SERVER),
    [
      filter.actor ?? null,
      filter.action ?? null,
      filter.serverUuid ?? null,
      filter.object ?? null,
      filter.requestId ?? null,
      filter.since ?? null,
      filter.until ?? null,
      filter.before ?? null,
      filter.objectPrefix ?? null,
      filter.limit,
      filter.bytes ?? AUDIT_PAGE_BYTES,
    ],
  );
  return rows;
}

/** Deletes at most `limit` records older than `days`. */
export async function deleteOldAudit(database: Queryable, days: number, limit: number): Promise<number> {
  const { rowCount } = await database.query(
    `delete from cnapi_audit where id in (
       select id from cnapi_audit where time < cnapi_now() - make_interval(days => $1::int)
       order by time limit $2::int for update skip locked)`,
    [days, limit],
  );
  return rowCount;
}
