/**
 * The SQL of servers. One statement per question: a list reads the narrow document, and the wider parts only when they
 * are asked for; the roster's status is joined at read and written by the roster alone. Called by `servers.ts`.
 */
import type { Queryable } from '../moray/database.ts';
import type { Json, ServerParts, ServerReport, ServerStatus } from './server.ts';

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
export interface Breadth {
  agents: boolean;
  report: boolean;
  sysinfo: boolean;
  lastHeartbeat: boolean;
}

export interface Page {
  limit: number;
  offset: number;
}

export const WHOLE: Breadth = { agents: true, report: true, sysinfo: true, lastHeartbeat: true };
/** All that most questions about a server need: a fraction of what a whole one costs. */
export const NARROW: Breadth = { agents: false, report: false, sysinfo: false, lastHeartbeat: false };

interface PartsRow {
  document: Json & { uuid: string };
  status: ServerStatus | null;
  epoch: number | null;
  vms?: Record<string, Json> | null;
  memory?: Record<string, number> | null;
  disk?: Record<string, number> | null;
  sysinfo?: Json | null;
  last_heartbeat?: Date | null;
}

/** In order of uuid; `default` is no server. */
export async function listServers(
  database: Queryable,
  filter: ServerFilter,
  breadth: Breadth,
  page: Page,
): Promise<ServerParts[]> {
  const values: unknown[] = [page.limit, page.offset];
  const conditions = ['s.uuid is not null', ...conditionsOf(filter, values)];
  const { rows } = await database.query<PartsRow>(
    `select ${columnsOf(breadth)} ${fromOf(breadth)}
     where ${conditions.join(' and ')} order by s.uuid limit $1::bigint offset $2::bigint`,
    values,
    // With filters there are too many of them to be kept ready.
    conditions.length === 1 ? { name: `list servers with ${partsOf(breadth)}` } : {},
  );
  return rows.map((row) => toParts(row, breadth));
}

export async function readServer(
  database: Queryable,
  serverUuid: string,
  breadth: Breadth,
): Promise<ServerParts | undefined> {
  const { rows } = await database.query<PartsRow>(
    `select ${columnsOf(breadth)} ${fromOf(breadth)} where s.uuid = $1::uuid`,
    [serverUuid],
    { name: `read server with ${partsOf(breadth)}` },
  );
  return rows[0] === undefined ? undefined : toParts(rows[0], breadth);
}

/** At most 63 characters of a statement's name count. */
const partsOf = (breadth: Breadth): string =>
  (Object.keys(breadth) as (keyof Breadth)[])
    .filter((part) => breadth[part])
    .sort()
    .join(' ');

/** By server, the digests of the sysinfos that are kept; one that is not there, or whose server is not, is missing. */
export async function readDigests(database: Queryable, serverUuids: readonly string[]): Promise<Map<string, string>> {
  const { rows } = await database.query<{ server_uuid: string; digest: string }>(
    `select i.server_uuid, i.digest from cnapi_server_sysinfo i join cnapi_servers s on s.uuid = i.server_uuid
     where i.server_uuid = any ($1::uuid[])`,
    [serverUuids],
    { name: 'read sysinfo digests' },
  );
  return new Map(rows.map((row) => [row.server_uuid, row.digest]));
}

/** These keys of a server's sysinfo; undefined when none is kept. */
export async function readSysinfoParts(
  database: Queryable,
  serverUuid: string,
  keys: readonly string[],
): Promise<Json | undefined> {
  const { rows } = await database.query<{ parts: Json }>(
    `select coalesce((select jsonb_object_agg(key, i.sysinfo -> key) from unnest($2::text[]) as key
         where i.sysinfo ? key), '{}') as parts
       from cnapi_server_sysinfo i where i.server_uuid = $1::uuid`,
    [serverUuid, keys],
  );
  return rows[0]?.parts;
}

export async function storeSysinfo(
  database: Queryable,
  serverUuid: string,
  sysinfo: Json,
  digest: string,
): Promise<void> {
  await database.query(
    `insert into cnapi_server_sysinfo as i (server_uuid, digest, sysinfo, stored_at)
     values ($1::uuid, $2::text, $3::text::jsonb, cnapi_now())
     on conflict (server_uuid) do update
       set digest = excluded.digest, sysinfo = excluded.sysinfo, stored_at = excluded.stored_at`,
    [serverUuid, digest, JSON.stringify(sysinfo)],
    { name: 'store sysinfo' },
  );
}

/** Keeps what agents report, each of its server, of those servers that are there; returns which. A server stands in it once. */
export async function storeReports(
  database: Queryable,
  reports: readonly (readonly [serverUuid: string, report: ServerReport])[],
): Promise<string[]> {
  const { rows } = await database.query<{ server_uuid: string }>(
    `insert into cnapi_server_reports as r (server_uuid, vms, memory, disk, stored_at)
     select s.uuid, n.vms::jsonb, n.memory::jsonb, n.disk::jsonb, cnapi_now()
       from unnest($1::uuid[], $2::text[], $3::text[], $4::text[]) as n (server_uuid, vms, memory, disk)
       join cnapi_servers s on s.uuid = n.server_uuid order by s.uuid
     on conflict (server_uuid) do update
       set vms = excluded.vms, memory = excluded.memory, disk = excluded.disk, stored_at = excluded.stored_at
     returning server_uuid`,
    [
      reports.map(([serverUuid]) => serverUuid),
      ...(['vms', 'memory', 'disk'] as const).map((part) => reports.map(([, report]) => JSON.stringify(report[part]))),
    ],
    { name: 'store reports' },
  );
  return rows.map((row) => row.server_uuid);
}

/** All parts that are this noun's. False when there was no such server. */
export async function deleteServer(database: Queryable, key: string): Promise<boolean> {
  const { rows } = await database.query<{ deleted: number }>(
    `with document as (delete from cnapi_servers where _key = $1::text returning uuid),
       sysinfo as (delete from cnapi_server_sysinfo where server_uuid in (select uuid from document)),
       report as (delete from cnapi_server_reports where server_uuid in (select uuid from document))
     select count(*) as deleted from document`,
    [key],
  );
  return (rows[0]?.deleted ?? 0) > 0;
}

/** The roster's row of a server, as far as servers care. */
export async function readStanding(
  database: Queryable,
  serverUuid: string,
): Promise<{ status: ServerStatus; epoch: number } | undefined> {
  const { rows } = await database.query<{ status: ServerStatus; epoch: number }>(
    'select status, epoch from cnapi_roster_authority where server_uuid = $1::uuid',
    [serverUuid],
  );
  return rows[0];
}

/** The document as it is stored: to leave anything out of a jsonb costs the database as much as all the rest of a list. */
function columnsOf({ report, sysinfo, lastHeartbeat }: Breadth): string {
  return [
    's._value as document, a.status, a.epoch',
    ...(report ? ['r.vms, r.memory, r.disk'] : []),
    ...(sysinfo ? ['i.sysinfo'] : []),
    ...(lastHeartbeat ? ['h.last_heartbeat'] : []),
  ].join(', ');
}

function fromOf({ report, sysinfo, lastHeartbeat }: Breadth): string {
  return [
    'from cnapi_servers s left join cnapi_roster_authority a on a.server_uuid = s.uuid',
    ...(report ? ['left join cnapi_server_reports r on r.server_uuid = s.uuid'] : []),
    ...(sysinfo ? ['left join cnapi_server_sysinfo i on i.server_uuid = s.uuid'] : []),
    ...(lastHeartbeat ? ['left join cnapi_status h on h.server_uuid = s.uuid'] : []),
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

function toParts(row: PartsRow, breadth: Breadth): ServerParts {
  const { document, status, epoch, vms, memory, disk, sysinfo, last_heartbeat } = row;
  return {
    document,
    status,
    epoch,
    showsAgents: breadth.agents,
    ...(breadth.report ? { report: { vms: vms ?? {}, memory: memory ?? {}, disk: disk ?? {} } } : {}),
    ...(breadth.sysinfo ? { sysinfo: sysinfo ?? {} } : {}),
    ...(breadth.lastHeartbeat ? { lastHeartbeat: last_heartbeat?.toISOString() ?? null } : {}),
  };
}
