/**
 * The server object: what is stored of a server, how sysinfo and callers change it, and how its
 * parts form an answer. Pure. Called by `server-store.ts` and `servers.ts`. The rules are the
 * reference's (docs/compatibility.md lists the differences): its stored properties, its derived
 * ones, and those that never change after creation.
 *
 * A server's parts have rows of their own, so that a list reads narrow ones: the document (here),
 * its sysinfo, its agent's last report of VMs, memory and disk, and the roster's status, which is
 * joined at read and never stored here.
 */

import { MIB } from '../../platform/byte-units.ts';
import { withoutUndefined } from '../../platform/defined-fields.ts';
import { CnapiError } from '../../platform/errors.ts';
import { isUuid } from '../../protocol/api/contract/rules.ts';
import type { Server, ServerStatus } from '../../protocol/api/servers.ts';
import { isJsonObject, type JsonObject } from '../../protocol/json/bounded-json.ts';
import { vmSummary } from '../../protocol/vms.ts';

/** `cnapi_servers._value`: everything except status, sysinfo and report. Keys as on the wire. */
export interface ServerDocument {
  uuid: string;
  agents: JsonObject[];
  boot_modules: unknown[];
  boot_params: JsonObject;
  boot_platform: string;
  comments: string;
  created: string;
  current_platform?: string;
  datacenter: string;
  default_console: string;
  headnode: boolean;
  hostname: string;
  kernel_flags: JsonObject;
  last_boot?: string;
  next_reboot?: string;
  rack_identifier: string;
  ram?: number;
  reservation_ratio: number;
  reserved: boolean;
  reservoir: boolean;
  serial: string;
  /** A job resets the server: no sysinfo makes it set up. Never served. */
  resetting?: true;
  setting_up?: boolean;
  setup: boolean;
  system_type?: string;
  traits: JsonObject;
  transitional_status?: string;
  /**
   * The roster's epoch when transitional_status was set; a later session ends the transition. Never
   * served.
   */
  transitional_epoch?: number;
}

/** The fields of the defaults record (`default`): the initial values of new servers. */
export type ServerDefaults = Pick<
  ServerDocument,
  'boot_modules' | 'boot_params' | 'boot_platform' | 'default_console' | 'kernel_flags' | 'serial'
>;

export const DEFAULTS_KEY = 'default';

export const INITIAL_DEFAULTS: Readonly<ServerDefaults> = {
  boot_modules: [],
  boot_params: {},
  boot_platform: '',
  default_console: 'serial',
  kernel_flags: {},
  serial: 'ttyb',
};

/**
 * The served form. `status` is for display; whether work may be sent depends on the `status` of the
 * parts.
 */
export type ServerObject = JsonObject & Server;

export interface ServerParts {
  document: JsonObject & { uuid: string };
  status: ServerStatus | null;
  epoch: number | null;
  /** Default true: the document's `agents` are served. */
  showsAgents?: boolean;
  report?: ServerReport | null;
  sysinfo?: JsonObject | null;
  /** Time of the newest recorded heartbeat of a legacy agent, in ISO 8601. */
  lastHeartbeat?: string | null;
}

/**
 * An agent's report about its machine: `POST …/events/status` of Triton's CNAPI, `status` on the
 * link.
 */
export interface ServerReport {
  vms: Record<string, JsonObject>;
  /** `memory_…_bytes` */
  memory: Record<string, number>;
  /** `disk_…_bytes` */
  disk: Record<string, number>;
}

interface SysinfoContext {
  defaults: ServerDefaults;
  datacenter: string;
  /** ISO 8601; used as `created` if the sysinfo has no such time. */
  observedAt: string;
}

/** An agent of this project has at most 1,000 VMs, and Triton recommends fewer. */
const MAX_REPORTED_VMS = 1_000;
/** Characters of a field of a VM; an alias and an error sentence fit. */
const MAX_VM_TEXT = 500;
const VM_FIELDS = Object.keys(vmSummary.shape);

/** A report has more VMs than a server may have. Nothing of it is stored. */
export class TooManyVmsError extends CnapiError {
  constructor(serverUuid: string, vms: number) {
    const message = `Server ${serverUuid} reports ${vms} VMs; at most ${MAX_REPORTED_VMS} are stored, so its report is refused`;
    super('TooManyVms', 409, message);
  }
}

/**
 * The document after a sysinfo. Creates it when `before` is absent; otherwise updates its derived
 * fields.
 */
export function applySysinfo(
  before: ServerDocument | undefined,
  uuid: string,
  sysinfo: JsonObject,
  context: SysinfoContext,
): ServerDocument {
  const base = before ?? newServer(uuid, sysinfo, context);
  const after = { ...base, ...derivedFields(sysinfo) };
  if (base.resetting) after.setup = base.setup;
  // An agent of this project says which agents its server has now. Others post them, and their
  // sysinfo may be older.
  const agents = agentsOf(sysinfo);
  const isOfToday = Object.hasOwn(sysinfo, 'CN Agent Version') && agents.length > 0;
  if (isOfToday || after.agents.length === 0) after.agents = agents;
  if (before !== undefined && after.last_boot !== before.last_boot) {
    delete after.transitional_status;
    delete after.transitional_epoch;
  }
  return after;
}

/**
 * The known fields of a report; all others are left out, and so are VMs whose keys are not uuids in
 * lower case (`countMisnamedVms`).
 * @throws TooManyVmsError
 */
export function parseReport(serverUuid: string, status: JsonObject): ServerReport {
  return {
    vms: reportedVms(serverUuid, status.vms),
    memory: {
      ...renamed(status.meminfo, { availrmem_bytes: 'memory_available_bytes', arcsize_bytes: 'memory_arc_bytes' }),
      ...renamed(status.meminfo, { total_bytes: 'memory_total_bytes' }),
    },
    disk: renamed(status.diskinfo, Object.fromEntries(DISK_KEYS.map((key) => [key, `disk_${key}`]))),
  };
}

export function countMisnamedVms({ vms }: JsonObject): number {
  return isJsonObject(vms) ? Object.keys(vms).filter((key) => !isStoredUuid(key)).length : 0;
}

/**
 * Merges a newer report over an older one. Figures that it leaves out stay; its list of VMs is
 * complete, as in Triton's CNAPI.
 */
export function mergeReports(older: ServerReport, newer: ServerReport): ServerReport {
  return {
    vms: newer.vms,
    memory: { ...older.memory, ...newer.memory },
    disk: { ...older.disk, ...newer.disk },
  };
}

/**
 * The served form of a server, from the parts that were read. A transition is displayed until the
 * next session ends it.
 */
export function composeServer(parts: ServerParts): ServerObject {
  const { document, status, epoch, showsAgents = true, report, sysinfo, lastHeartbeat } = parts;
  const {
    transitional_epoch = null,
    transitional_status,
    resetting: _,
    agents,
    ...lasting
  } = document as JsonObject & Partial<ServerDocument>;
  const transition = transitional_epoch === epoch && transitional_status ? transitional_status : undefined;
  // `lasting` is already a fresh copy; a list makes a thousand of them.
  const server = lasting as JsonObject as ServerObject;
  server.status = String(status === 'running' ? status : (transition ?? 'unknown')) as ServerObject['status'];
  if (transition !== undefined) server.transitional_status = transition;
  if (showsAgents && agents !== undefined) server.agents = agents;
  if (report != null) Object.assign(server, report.disk, memoryOf(server, report), { vms: withoutReasons(report.vms) });
  if (sysinfo !== undefined) server.sysinfo = sysinfo ?? {};
  if (lastHeartbeat !== undefined) server.last_heartbeat = lastHeartbeat;
  return server;
}

/**
 * Memory as reported, and how much of it can be provisioned: all, less the reserved share, less the
 * maximum of the VMs.
 */
function memoryOf(server: JsonObject, report: ServerReport): Record<string, number> {
  const ram = server.ram;
  const total = typeof ram === 'number' ? ram * MIB : report.memory.memory_total_bytes;
  if (total === undefined) return report.memory;
  const ratio = typeof server.reservation_ratio === 'number' ? server.reservation_ratio : 0;
  const promised = Object.values(report.vms).reduce(
    (sum, vm) => sum + (numberOf(vm.max_physical_memory) ?? 0) * MIB,
    0,
  );
  return { ...report.memory, memory_provisionable_bytes: Math.floor(total - total * ratio - promised) };
}

function newServer(
  uuid: string,
  sysinfo: JsonObject,
  { defaults, datacenter, observedAt }: SysinfoContext,
): ServerDocument {
  return {
    ...defaults,
    uuid,
    agents: [],
    comments: '',
    created: isoOfEpoch(sysinfo['Zpool Creation']) ?? observedAt,
    datacenter,
    headnode: false,
    hostname: textOf(sysinfo.Hostname) ?? '',
    rack_identifier: '',
    reservation_ratio: 0.15,
    reserved: false,
    reservoir: false,
    setup: false,
    traits: {},
  };
}

/** The fields that each sysinfo updates. Absent keys leave the earlier values. */
function derivedFields(sysinfo: JsonObject): Partial<ServerDocument> {
  const bootParameters = sysinfo['Boot Parameters'];
  return withoutUndefined({
    current_platform: textOf(sysinfo['Live Image']),
    headnode: isJsonObject(bootParameters) ? bootParameters.headnode === 'true' : undefined,
    last_boot: isoOfEpoch(sysinfo['Boot Time']),
    ram: integerOf(sysinfo['MiB of Memory']),
    setup: sysinfo.Setup === undefined ? undefined : sysinfo.Setup === true || sysinfo.Setup === 'true',
    system_type: textOf(sysinfo['System Type']),
  });
}

function agentsOf(sysinfo: JsonObject): JsonObject[] {
  const agents = sysinfo['SDC Agents'];
  return Array.isArray(agents) ? agents.filter(isJsonObject) : [];
}

const DISK_KEYS = [
  'cores_quota_bytes',
  'cores_quota_used_bytes',
  'installed_images_used_bytes',
  'kvm_quota_bytes',
  'kvm_quota_used_bytes',
  'kvm_zvol_used_bytes',
  'kvm_zvol_volsize_bytes',
  'pool_alloc_bytes',
  'pool_size_bytes',
  'system_used_bytes',
  'zone_quota_bytes',
  'zone_quota_used_bytes',
];

function renamed(source: unknown, names: Record<string, string>): Record<string, number> {
  const found: Record<string, number> = {};
  if (!isJsonObject(source)) return found;
  for (const [from, to] of Object.entries(names)) {
    const value = Object.hasOwn(source, from) ? numberOf(source[from]) : undefined;
    if (value !== undefined) found[to] = value;
  }
  return found;
}

/**
 * Removes the reasons of failures, because every reader sees a server. `GET /vms` shows them to
 * operators.
 */
function withoutReasons(vms: Record<string, JsonObject>): Record<string, JsonObject> {
  return Object.fromEntries(
    Object.entries(vms).map(([uuid, vm]) => {
      if (!Object.hasOwn(vm, 'error')) return [uuid, vm];
      const { error: _error, ...rest } = vm;
      return [uuid, rest];
    }),
  );
}

/**
 * The known fields of each VM, unless they are too long: an agent may send anything. @throws
 * TooManyVmsError
 */
function reportedVms(serverUuid: string, value: unknown): Record<string, JsonObject> {
  if (!isJsonObject(value)) return {};
  const vms = Object.entries(value).filter((entry): entry is [string, JsonObject] => isJsonObject(entry[1]));
  if (vms.length > MAX_REPORTED_VMS) throw new TooManyVmsError(serverUuid, vms.length);
  return Object.fromEntries(vms.filter(([key]) => isStoredUuid(key)).map(([uuid, vm]) => [uuid, knownFields(vm)]));
}

/** The uuids of VMs are stored in lower case. */
const isStoredUuid = (key: string): boolean => isUuid(key) && key === key.toLowerCase();

function knownFields(vm: JsonObject): JsonObject {
  const known: JsonObject = {};
  for (const field of VM_FIELDS) {
    const value = vm[field];
    if (value === null || typeof value === 'number' || typeof value === 'boolean') known[field] = value;
    else if (typeof value === 'string' && value.length <= MAX_VM_TEXT) known[field] = value;
  }
  return known;
}

function textOf(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined;
}

function numberOf(value: unknown): number | undefined {
  const number = typeof value === 'string' && value.trim() !== '' ? Number(value) : value;
  return typeof number === 'number' && Number.isFinite(number) ? number : undefined;
}

/** Undefined for a number that a double cannot hold exactly: clients refuse an answer with one. */
function integerOf(value: unknown): number | undefined {
  const number = numberOf(value);
  return number === undefined || !Number.isSafeInteger(Math.trunc(number)) ? undefined : Math.trunc(number);
}

/** Converts seconds since the epoch, the form of times in sysinfo, to ISO 8601. */
function isoOfEpoch(value: unknown): string | undefined {
  const seconds = numberOf(value);
  if (seconds === undefined || seconds < 0 || seconds > 8.64e12) return undefined;
  return new Date(seconds * 1000).toISOString();
}
