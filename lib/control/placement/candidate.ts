/**
 * A server as a place for a VM, and how much room it has. Pure. Memory and disk are in MiB, CPU as
 * `cpu_cap`: 100 is one core.
 */
import { isJsonObject, type JsonObject } from '../../protocol/json/bounded-json.ts';

/** How much a VM takes. Without a disk or a CPU cap that is 0. */
export interface VmSize {
  ram: number;
  disk: number;
  cpu: number;
}

/** What is on a server or promised to it (`migrations/002-load.sql`). */
interface ServerLoad extends VmSize {
  vms: number;
  capped: number;
  uncapped: number;
  /** VMs of the owner for whom room is sought. */
  owned: number;
  /** Which of the VMs that the request names are there. */
  named: readonly string[];
  isSick: boolean;
}

export interface CandidateServer {
  uuid: string;
  hostname: string;
  rack: string;
  isRunning: boolean;
  /** Why it stops soon or is about to come back: it is rebooting, or a job reboots or resets it. */
  interruption: string | undefined;
  isSetUp: boolean;
  /** False for an agent of this project without --containers; agents of Triton do not say. */
  mayRunContainers: boolean;
  isReserved: boolean;
  isInReservoir: boolean;
  isHeadnode: boolean;
  reservationRatio: number;
  traits: JsonObject;
  /** ISO 8601. */
  nextReboot: string | undefined;
  lastBoot: string | undefined;
  /** `Live Image` and `SDC Version` of its sysinfo. */
  platform: string | undefined;
  platformVersion: string | undefined;
  /** NIC tags of interfaces that are up, and of the others. Undefined without interfaces. */
  nicTags: { up: readonly string[]; down: readonly string[] } | undefined;
  /** Undefined while nothing has reported it. */
  totals: { ram: number | undefined; disk: number | undefined; cores: number | undefined };
  load: ServerLoad;
}

/** How many times each resource is promised. */
export interface Ratios {
  cpu: number;
  ram: number;
  disk: number;
}

/** How much may be on a server, in the sizes of VMs. Undefined: no limit. */
export interface ServerLimits {
  vms: number | undefined;
  ram: number | undefined;
  disk: number | undefined;
  cpu: number | undefined;
}

export const NO_LOAD: ServerLoad = {
  vms: 0,
  ram: 0,
  disk: 0,
  cpu: 0,
  capped: 0,
  uncapped: 0,
  owned: 0,
  named: [],
  isSick: false,
};

/** The sums of VM sizes with which a server is full. */
export function serverLimitsOf({ totals, reservationRatio }: CandidateServer, ratios: Ratios): Required<VmSize> {
  return {
    ram: (totals.ram ?? 0) * (1 - reservationRatio) * ratios.ram,
    disk: (totals.disk ?? 0) * ratios.disk,
    cpu: (totals.cores ?? 0) * 100 * ratios.cpu,
  };
}

/**
 * What is left of a server, in its own units, as the reference counts: a VM without a cap takes all
 * CPU.
 */
export function unreservedOf(candidate: CandidateServer, ratios: Ratios): VmSize {
  const limits = serverLimitsOf(candidate, ratios);
  const { load } = candidate;
  return {
    ram: Math.floor((limits.ram - load.ram) / ratios.ram),
    disk: Math.floor((limits.disk - load.disk) / ratios.disk),
    cpu: load.uncapped > 0 ? Math.min(0, -load.cpu / ratios.cpu) : Math.floor((limits.cpu - load.cpu) / ratios.cpu),
  };
}

/**
 * The NIC tags of a sysinfo's interfaces; an interface that says nothing of its link counts as
 * down.
 */
export function nicTagsOf(interfaces: unknown): CandidateServer['nicTags'] {
  if (!isJsonObject(interfaces)) return undefined;
  const tags = { up: [] as string[], down: [] as string[] };
  for (const nic of Object.values(interfaces)) {
    if (!isJsonObject(nic) || !Array.isArray(nic['NIC Names'])) continue;
    const found = nic['NIC Names'].filter((name) => typeof name === 'string');
    (nic['Link Status'] === 'up' ? tags.up : tags.down).push(...found);
  }
  return tags;
}
