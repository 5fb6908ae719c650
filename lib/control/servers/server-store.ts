/**
 * The SQL of servers. One statement per question: a list reads the narrow document, and the wider
 * parts only on request. The roster's status is joined at each read; only the roster writes it.
 * Called by `servers.ts`.
 */

import type { Queryable } from '../../platform/postgres/database.ts';
import type { ServerStatus } from '../../protocol/api/servers.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import type { ServerParts, ServerReport } from './server.ts';

export interface ServerFilter {
  uuids?: readonly string[] | undefined;
  datacenter?: string | undefined;
  hostname?: string | undefined;
  headnode?: boolean | undefined;
  reserved?: boolean | undefined;
  reservoir?: boolean | undefined;
  setup?: boolean | undefined;
}

/** Which of a server's wider parts to read. */
export interface PartSelection {
  agents: boolean;
  report: boolean;
  sysinfo: boolean;
  lastHeartbeat: boolean;
}

export const ALL_PARTS: PartSelection = { agents: true, report: true, sysinfo: true, lastHeartbeat: true };
/** Enough for most questions about a server, at a fraction of the cost of a whole one. */
export const CORE_PARTS: PartSelection = { agents: false, report: false, sysinfo: false, lastHeartbeat: false };

interface PartsRow {
  document: JsonObject & { uuid: string };
  status: ServerStatus | null;
  epoch: number | null;
  vms?: Record<string, JsonObject> | null;
  memory?: Record<string, number> | null;
  disk?: Record<string, number> | null;
  sysinfo?: JsonObject | null;
  last_heartbeat?: Date | null;
}

/** Part of a list: the maximum number of rows, and the number of bytes after which it ends. */
export interface ListPart {
  limit: number;
  offset: number;
  /** Only servers after this one. */
  after?: string | undefined;
  /**
   * The size of the wide columns, not compressed; the first row is returned whatever its size.
   * Absent: no limit.
   */
  bytes?: number | undefined;
}

interface ServerChunk {
  servers: ServerParts[];
  /** The last server, to continue after it; undefined when there are no more. */
  next: string | undefined;
}

/** Returns servers in order of uuid. Leaves out `default`, which is not a server. */
export async function listServers(
  database: Queryable,
  filter: ServerFilter,
  partSelection: PartSelection,
  { limit, offset, after, bytes = Number.MAX_SAFE_INTEGER }: ListPart,
): Promise<ServerChunk> {
  const joined = { ...partSelection, lastHeartbeat: false };
  const values: unknown[] = [limit, offset, bytes];
  const conditions = ['s.uuid is not null', ...conditionsOf(filter, values)];
  const isPlain = conditions.length === 1;
  if (after !== undefined) conditions.push(`s.uuid > $${values.push(after)}::uuid`);
  const { rows } = await database.query<PartsRow & { total: number }>(
    `select ${namesOf(joined)}, total from (
       select *, coalesce(sum(bytes) over (order by uuid rows between unbounded preceding and 1 preceding), 0) as bytes_before,
         count(*) over () as total
       from (select ${columnsOf(joined)}, s.uuid, ${sizeOf(joined)} as bytes ${fromOf(joined)}
         where ${conditions.join(' and ')} order by s.uuid limit $1::bigint offset $2::bigint) part) measured
     where bytes_before < $3::bigint order by uuid`,
    values,
    // Filters have too many combinations to keep a prepared statement for each.
    isPlain ? { name: `list servers ${after === undefined ? '' : 'on '}with ${partsOf(joined)}` } : {},
  );
  const isOver = rows.length === 0 || (rows.length < limit && rows.length === rows[0]?.total);
  if (partSelection.lastHeartbeat) await addLastHeartbeats(database, rows);
  return {
    servers: rows.map((row) => toParts(row, partSelection)),
    next: isOver ? undefined : rows.at(-1)?.document.uuid,
  };
}

/**
 * Reads the heartbeats of many servers in a statement of its own: joined to the list, the planner
 * may choose to compare each server with each heartbeat.
 */
async function addLastHeartbeats(database: Queryable, rows: readonly PartsRow[]): Promise<void> {
  const found = await database.query<{ server_uuid: string; last_heartbeat: Date }>(
    'select server_uuid, last_heartbeat from cnapi_last_heartbeats($1::uuid[])',
    [rows.map(({ document }) => document.uuid)],
  );
  const byServer = new Map(found.rows.map((row) => [row.server_uuid, row.last_heartbeat]));
  for (const row of rows) row.last_heartbeat = byServer.get(row.document.uuid) ?? null;
}

export async function readServer(
  database: Queryable,
  serverUuid: string,
  partSelection: PartSelection,
): Promise<ServerParts | undefined> {
  const { rows } = await database.query<PartsRow>(
    `select ${columnsOf(partSelection)} ${fromOf(partSelection)} where s.uuid = $1::uuid`,
    [serverUuid],
    { name: `read server with ${partsOf(partSelection)}` },
  );
  return rows[0] === undefined ? undefined : toParts(rows[0], partSelection);
}

/** Short names, because only the first 63 characters of a statement's name count. */
const partsOf = (partSelection: PartSelection): string =>
  (Object.keys(partSelection) as (keyof PartSelection)[])
    .filter((part) => partSelection[part])
    .sort()
    .join(' ');

/**
 * The digests of the stored sysinfos, by server. Leaves out servers that do not exist or have no
 * sysinfo.
 */
export async function readDigests(database: Queryable, serverUuids: readonly string[]): Promise<Map<string, string>> {
  const { rows } = await database.query<{ server_uuid: string; digest: string }>(
    `select i.server_uuid, i.digest from cnapi_server_sysinfo i join cnapi_servers s on s.uuid = i.server_uuid
     where i.server_uuid = any ($1::uuid[])`,
    [serverUuids],
    { name: 'read sysinfo digests' },
  );
  return new Map(rows.map((row) => [row.server_uuid, row.digest]));
}

/** Returns these keys of a server's sysinfo; undefined when none is stored. */
export async function readSysinfoParts(
  database: Queryable,
  serverUuid: string,
  keys: readonly string[],
): Promise<JsonObject | undefined> {
  const { rows } = await database.query<{ parts: JsonObject }>(
    `select coalesce((select jsonb_object_agg(key, i.sysinfo -> key) from unnest($2::text[]) as key
         where i.sysinfo ? key), '{}') as parts
       from cnapi_server_sysinfo i where i.server_uuid = $1::uuid`,
    [serverUuid, keys],
  );
  return rows[0]?.parts;
}

export interface KeptSysinfo {
  serverUuid: string;
  sysinfo: JsonObject;
  digest: string;
}

/**
 * The documents of these servers, locked: a removal waits until their parts are stored, and then
 * deletes them. Without the lock a part that is stored during a removal would stay behind, and
 * belong to the next server with this uuid.
 */
const EXISTING = `existing as materialized (
  select s.uuid from cnapi_servers s where s.uuid = any ($1::uuid[]) order by s.uuid for key share of s)`;

/**
 * Each server may occur only once. Returns the servers whose sysinfo was stored; the others do not
 * exist.
 */
export async function storeSysinfos(database: Queryable, kept: readonly KeptSysinfo[]): Promise<string[]> {
  const { rows } = await database.query<{ server_uuid: string }>(
    `with ${EXISTING}
     insert into cnapi_server_sysinfo as i (server_uuid, digest, sysinfo, stored_at)
     select e.uuid, k.digest, k.sysinfo::jsonb, cnapi_now()
       from unnest($1::uuid[], $2::text[], $3::text[]) as k (server_uuid, digest, sysinfo)
       join existing e on e.uuid = k.server_uuid order by e.uuid
     on conflict (server_uuid) do update
       set digest = excluded.digest, sysinfo = excluded.sysinfo, stored_at = excluded.stored_at
     returning i.server_uuid`,
    [
      kept.map(({ serverUuid }) => serverUuid),
      kept.map(({ digest }) => digest),
      kept.map(({ sysinfo }) => JSON.stringify(sysinfo)),
    ],
    { name: 'store sysinfo' },
  );
  return rows.map((row) => row.server_uuid);
}

/** What happened to a report; `locked`: nothing yet, try again. */
type ReportOutcome = 'stored' | 'outdated' | 'locked';

export interface ReportToStore {
  serverUuid: string;
  /**
   * Epoch of the session that sent the report; undefined for a legacy agent, which has no session.
   */
  epoch: number | undefined;
  report: ServerReport;
}

/**
 * Stores the reports of those servers that exist, with the VMs in them. Returns what happened, by
 * server; a server that does not exist is absent. Each server may occur only once. Figures that a
 * report leaves out keep their values.
 */
export async function storeReports(
  database: Queryable,
  reports: readonly ReportToStore[],
): Promise<Map<string, ReportOutcome>> {
  const { rows } = await database.query<{ server_uuid: string; outcome: ReportOutcome }>(
    `select server_uuid, outcome
       from cnapi_store_reports($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::text[])`,
    [
      reports.map(({ serverUuid }) => serverUuid),
      reports.map(({ epoch }) => epoch ?? null),
      ...(['vms', 'memory', 'disk'] as const).map((part) => reports.map(({ report }) => JSON.stringify(report[part]))),
    ],
    { name: 'store reports' },
  );
  return new Map(rows.map(({ server_uuid, outcome }) => [server_uuid, outcome]));
}

/** The server's roster row before the removal; nulls when it had none. */
export interface RemovedServer {
  /** The run that had authority; its session must be closed. */
  previousRun: string | null;
  epoch: number | null;
}

/**
 * Removes everything stored for the server, and its authority. Undefined: there was no such server.
 */
export async function removeServer(
  database: Queryable,
  cnapiUuid: string,
  serverUuid: string,
): Promise<RemovedServer | undefined> {
  const { rows } = await database.query<RemovedServer>(
    `select previous_run as "previousRun", kept_epoch as "epoch" from cnapi_remove_server($1::uuid, $2::uuid)`,
    [cnapiUuid, serverUuid],
  );
  return rows[0];
}

/** The number of servers by status. */
export async function countServers(database: Queryable): Promise<Record<string, number>> {
  const { rows } = await database.query<{ status: string; count: number }>(
    `select coalesce(a.status, 'unknown') as status, count(*)::int as count
       from cnapi_servers s left join cnapi_roster_authority a on a.server_uuid = s.uuid
       where s.uuid is not null group by 1`,
    [],
    { name: 'count servers' },
  );
  return { running: 0, unknown: 0, ...Object.fromEntries(rows.map(({ status, count }) => [status, count])) };
}

/** The parts of a server's roster row that `lib/control/servers` needs. */
export async function readRosterRow(
  database: Queryable,
  serverUuid: string,
): Promise<{ status: ServerStatus; epoch: number } | undefined> {
  const { rows } = await database.query<{ status: ServerStatus; epoch: number }>(
    'select status, epoch from cnapi_roster_authority where server_uuid = $1::uuid',
    [serverUuid],
  );
  return rows[0];
}

export interface ServerStatusRow {
  status: ServerStatus;
  /** When its last report was stored, by the database's clock; null without one. */
  reportStoredAt: Date | null;
}

/**
 * Whether these servers run, and from when their reports are; none of a server that does not exist.
 */
export async function readServerStatuses(
  database: Queryable,
  serverUuids: readonly string[],
): Promise<Map<string, ServerStatusRow>> {
  const { rows } = await database.query<ServerStatusRow & { serverUuid: string }>(
    `select s.uuid as "serverUuid", coalesce(a.status, 'unknown') as status, r.stored_at as "reportStoredAt"
       from cnapi_servers s left join cnapi_roster_authority a on a.server_uuid = s.uuid
         left join cnapi_server_reports r on r.server_uuid = s.uuid
       where s.uuid = any ($1::uuid[])`,
    [serverUuids],
    { name: 'read statuses of servers' },
  );
  return new Map(rows.map(({ serverUuid, ...status }) => [serverUuid, status]));
}

export interface ServerBoot {
  isRunning: boolean;
  /** ISO 8601; null if no sysinfo has told it. */
  lastBoot: string | null;
}

/** Whether these servers run, and since when; none of a server that does not exist. */
export async function readBoots(database: Queryable, serverUuids: readonly string[]): Promise<Map<string, ServerBoot>> {
  const { rows } = await database.query<ServerBoot & { serverUuid: string }>(
    `select s.uuid as "serverUuid", coalesce(a.status, 'unknown') = 'running' as "isRunning",
         s._value ->> 'last_boot' as "lastBoot"
       from cnapi_servers s left join cnapi_roster_authority a on a.server_uuid = s.uuid
       where s.uuid = any ($1::uuid[])`,
    [serverUuids],
    { name: 'read boots' },
  );
  return new Map(rows.map(({ serverUuid, ...boot }) => [serverUuid, boot]));
}

/**
 * The size in memory: megabytes can compress to a few KB. Concatenating a jsonb with an empty one
 * decompresses it, which costs much less than its text.
 */
function sizeOf(partSelection: PartSelection): string {
  const columns = [
    's._value',
    ...(partSelection.report ? ['r.vms', 'r.memory', 'r.disk'] : []),
    ...(partSelection.sysinfo ? ['i.sysinfo'] : []),
  ];
  return columns.map((column) => `coalesce(pg_column_size(${column} || '{}'), 0)`).join(' + ');
}

/** The names of the columns, when they are read. */
function namesOf({ report, sysinfo, lastHeartbeat }: PartSelection): string {
  return [
    'document, status, epoch',
    ...(report ? ['vms, memory, disk'] : []),
    ...(sysinfo ? ['sysinfo'] : []),
    ...(lastHeartbeat ? ['last_heartbeat'] : []),
  ].join(', ');
}

/** The hostnames of those servers that exist, by uuid. */
export async function readHostnames(database: Queryable, uuids: readonly string[]): Promise<Map<string, string>> {
  const { rows } = await database.query<{ uuid: string; hostname: string }>(
    `select uuid, coalesce(hostname, '') as hostname from cnapi_servers where uuid = any ($1::uuid[])`,
    [uuids],
  );
  return new Map(rows.map(({ uuid, hostname }) => [uuid, hostname]));
}

/**
 * Reads the document as it is stored: removing a key from a jsonb costs the database as much as the
 * rest of a list.
 */
function columnsOf({ report, sysinfo, lastHeartbeat }: PartSelection): string {
  return [
    's._value as document, a.status, a.epoch',
    ...(report ? ['r.vms, r.memory, r.disk'] : []),
    ...(sysinfo ? ['i.sysinfo'] : []),
    ...(lastHeartbeat ? ['cnapi_last_heartbeat(s.uuid) as last_heartbeat'] : []),
  ].join(', ');
}

function fromOf({ report, sysinfo }: PartSelection): string {
  return [
    'from cnapi_servers s left join cnapi_roster_authority a on a.server_uuid = s.uuid',
    ...(report ? ['left join cnapi_server_reports r on r.server_uuid = s.uuid'] : []),
    ...(sysinfo ? ['left join cnapi_server_sysinfo i on i.server_uuid = s.uuid'] : []),
  ].join(' ');
}

/** Adds to `values` what the conditions refer to. */
function conditionsOf({ uuids, datacenter, hostname, ...flags }: ServerFilter, values: unknown[]): string[] {
  const conditions: string[] = [];
  const add = (condition: string, value: unknown, type: string) =>
    conditions.push(`${condition}$${values.push(value)}::${type}${condition.endsWith('(') ? ')' : ''}`);
  if (uuids !== undefined) add('s.uuid = any(', uuids, 'uuid[]');
  if (datacenter !== undefined) add('s.datacenter = ', datacenter, 'text');
  if (hostname !== undefined) add('s.hostname = ', hostname, 'text');
  for (const name of ['headnode', 'reserved', 'reservoir', 'setup'] as const) {
    if (flags[name] !== undefined) add(`s.${name} = `, flags[name], 'boolean');
  }
  return conditions;
}

function toParts(row: PartsRow, partSelection: PartSelection): ServerParts {
  const { document, status, epoch, vms, memory, disk, sysinfo, last_heartbeat } = row;
  return {
    document,
    status,
    epoch,
    showsAgents: partSelection.agents,
    ...(partSelection.report ? { report: { vms: vms ?? {}, memory: memory ?? {}, disk: disk ?? {} } } : {}),
    ...(partSelection.sysinfo ? { sysinfo: sysinfo ?? {} } : {}),
    ...(partSelection.lastHeartbeat ? { lastHeartbeat: last_heartbeat?.toISOString() ?? null } : {}),
  };
}
