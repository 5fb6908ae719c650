/**
 * The SQL that reads servers as places for VMs: chunks of them in order of uuid, each with what it
 * has, what is on it and what is promised there. An index gives the chunk, so the cost depends on
 * its size and not on the number of servers. Called by `allocator.ts`.
 */
import { MIB } from '../../platform/byte-units.ts';
import type { Queryable } from '../../platform/postgres/database.ts';
import { isJsonObject, type JsonObject } from '../../protocol/json/bounded-json.ts';
import { type CandidateServer, NO_LOAD, nicTagsOf } from './candidate.ts';

/** The VM to be placed. Its own load does not count. */
export interface LoadQuery {
  vmUuid: string;
  ownerUuid: string;
  /** VMs that the request names, whose servers must be known. */
  namedVms: readonly string[];
}

interface CandidateRow {
  uuid: string;
  hostname: string | null;
  document: JsonObject;
  status: string | null;
  is_rebooting: boolean;
  /** Name and beginning of the id of the unfinished job that reboots or resets it. */
  job: string | null;
  sysinfo: JsonObject | null;
  memory: JsonObject | null;
  disk: JsonObject | null;
  vms: number | null;
  ram: number | null;
  used_disk: number | null;
  cpu: number | null;
  capped: number | null;
  uncapped: number | null;
  owned: number | null;
  named: string[] | null;
  is_sick: boolean | null;
}

/** Only these columns: the documents and sysinfos of a chunk may have megabytes. */
const candidateSql = (part: string) => `
  with part as materialized (${part})
  select p.uuid, p.hostname, to_jsonb(d) as document, a.status,
      coalesce(p._value -> 'transitional_epoch' = to_jsonb(a.epoch)
        and p._value ->> 'transitional_status' = 'rebooting', false) as is_rebooting,
      (select w.name || ' ' || left(w.id::text, 8) from cnapi_workflow_jobs w
        where w.server_uuid = p.uuid and w.ended_at is null and w.vm_uuid is null
          and w.name in ('server-reboot', 'server-factory-reset') limit 1) as job,
      to_jsonb(x) as sysinfo, r.memory, r.disk,
      l.vms, l.ram, l.disk as used_disk, l.cpu, l.capped, l.uncapped, l.owned, l.named, l.is_sick
    from part p
    cross join lateral jsonb_to_record(p._value) as d (rack_identifier jsonb, setup jsonb, reserved jsonb,
      reservoir jsonb, headnode jsonb, reservation_ratio jsonb, traits jsonb, next_reboot jsonb, last_boot jsonb,
      ram jsonb)
    left join cnapi_roster_authority a on a.server_uuid = p.uuid
    left join cnapi_server_sysinfo i on i.server_uuid = p.uuid
    left join lateral jsonb_to_record(i.sysinfo) as x ("CPU Total Cores" jsonb, "CPU Online Count" jsonb,
      "Live Image" jsonb, "SDC Version" jsonb, "Network Interfaces" jsonb, "CN Agent Version" jsonb, "Containers" jsonb) on true
    left join cnapi_server_reports r on r.server_uuid = p.uuid
    left join cnapi_placement_load(array(select q.uuid from part q), $1::text, $2::text, $3::text[]) l
      on l.server_uuid = p.uuid
    order by p.uuid`;

const COLUMNS = 's.uuid, s.hostname, s._value';
const CHUNK = candidateSql(
  `select ${COLUMNS} from cnapi_servers s where s.uuid > $4::uuid and s.uuid <= $5::uuid order by s.uuid limit $6::int`,
);
const NAMED = candidateSql(`select ${COLUMNS} from cnapi_servers s where s.uuid = any ($4::uuid[]) order by s.uuid`);

/** The next servers after `after`, up to `last`, in order of uuid. */
export async function readChunk(
  database: Queryable,
  loadQuery: LoadQuery,
  { after, last, size }: { after: string; last: string; size: number },
): Promise<CandidateServer[]> {
  const values = [...valuesOf(loadQuery), after, last, size];
  const { rows } = await database.query<CandidateRow>(CHUNK, values, { name: 'read placement chunk' });
  return rows.map(toCandidate);
}

/** Returns the candidates among these servers; a server that does not exist is left out. */
export async function readCandidates(
  database: Queryable,
  loadQuery: LoadQuery,
  serverUuids: readonly string[],
): Promise<CandidateServer[]> {
  const values = [...valuesOf(loadQuery), serverUuids];
  const { rows } = await database.query<CandidateRow>(NAMED, values, { name: 'read placement servers' });
  return rows.map(toCandidate);
}

interface LocatedVm {
  vmUuid: string;
  serverUuid: string;
  rack: string;
}

/** Where those of these VMs are, or have a claim, that belong to this owner. */
export async function readVmServers(
  database: Queryable,
  ownerUuid: string,
  vmUuids: readonly string[],
): Promise<LocatedVm[]> {
  const { rows } = await database.query<LocatedVm>(
    `with located as (
       select _key as vm, server_uuid from cnapi_vms
         where _key = any ($1::text[]) and _value ->> 'owner_uuid' = $2::text
       union
       select vm_uuid, server_uuid from cnapi_placement_claims c
         where vm_uuid = any ($1::text[]) and owner_uuid = $2::text
           and (expires_at > cnapi_now() or cnapi_vm_is_being_created(vm_uuid, server_uuid))
           and not exists (select 1 from cnapi_vms v where v._key = c.vm_uuid and v._value ->> 'owner_uuid' = $2::text)
     )
     select l.vm as "vmUuid", s.uuid as "serverUuid", coalesce(s._value ->> 'rack_identifier', '') as rack
       from located l join cnapi_servers s on s.uuid = l.server_uuid order by l.vm`,
    [vmUuids, ownerUuid],
    { name: 'read servers of vms' },
  );
  return rows;
}

const valuesOf = ({ vmUuid, ownerUuid, namedVms }: LoadQuery): unknown[] => [vmUuid, ownerUuid, namedVms];

const DEFAULT_RESERVATION = 0.15;

function toCandidate(row: CandidateRow): CandidateServer {
  const { document, memory, disk } = row;
  const sysinfo = row.sysinfo ?? {};
  return {
    uuid: row.uuid,
    hostname: row.hostname ?? '',
    rack: textOf(document.rack_identifier) ?? '',
    isRunning: row.status === 'running',
    interruption: interruptionOf(row),
    isSetUp: document.setup === true,
    mayRunContainers: textOf(sysinfo['CN Agent Version']) === undefined || textOf(sysinfo.Containers) !== undefined,
    isReserved: document.reserved === true,
    isInReservoir: document.reservoir === true,
    isHeadnode: document.headnode === true,
    reservationRatio: numberOf(document.reservation_ratio) ?? DEFAULT_RESERVATION,
    traits: isJsonObject(document.traits) ? document.traits : {},
    nextReboot: textOf(document.next_reboot),
    lastBoot: textOf(document.last_boot),
    platform: textOf(sysinfo['Live Image']),
    platformVersion: textOf(sysinfo['SDC Version']),
    nicTags: nicTagsOf(sysinfo['Network Interfaces']),
    totals: {
      ram: numberOf(document.ram) ?? mibOf(memory?.memory_total_bytes),
      disk: poolOf(disk ?? {}),
      cores: numberOf(sysinfo['CPU Total Cores']) ?? numberOf(sysinfo['CPU Online Count']),
    },
    load:
      row.vms === null
        ? NO_LOAD
        : {
            vms: row.vms,
            ram: row.ram ?? 0,
            disk: row.used_disk ?? 0,
            cpu: row.cpu ?? 0,
            capped: row.capped ?? 0,
            uncapped: row.uncapped ?? 0,
            owned: row.owned ?? 0,
            named: row.named ?? [],
            isSick: row.is_sick ?? false,
          },
  };
}

function interruptionOf({ is_rebooting: isRebooting, job }: CandidateRow): string | undefined {
  if (job !== null) return `has the unfinished job ${job}`;
  return isRebooting ? 'is rebooting' : undefined;
}

/** The pool less what images and core dumps use. */
function poolOf(disk: JsonObject): number | undefined {
  const size = mibOf(disk.disk_pool_size_bytes);
  const used = ['disk_installed_images_used_bytes', 'disk_cores_quota_used_bytes'].map((key) => mibOf(disk[key]) ?? 0);
  return size === undefined ? undefined : used.reduce((rest, one) => rest - one, size);
}

function mibOf(bytes: unknown): number | undefined {
  const number = numberOf(bytes);
  return number === undefined ? undefined : number / MIB;
}

const textOf = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined);
/** So large that no product of them is infinite. */
const MAX_NUMBER = 1e15;
/** Triton's sysinfo has some of its numbers as texts. */
function numberOf(value: unknown): number | undefined {
  const number = typeof value === 'string' && value.trim() !== '' ? Number(value) : value;
  if (typeof number !== 'number' || Number.isNaN(number)) return undefined;
  return Math.min(Math.max(number, -MAX_NUMBER), MAX_NUMBER);
}
