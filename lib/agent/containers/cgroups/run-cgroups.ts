/**
 * The control groups of containers. Finds out which limits this machine can set, and reads what a
 * run uses. The OCI runtime makes the group of a run, below a parent group of this agent; groups of
 * version 1 (each controller has a tree) and version 2 (one tree) work. Where a machine has both,
 * the runtime uses version 1, so only that counts.
 *
 * The monitor of each run has a group of its own: a service manager that stops the agent ends what
 * is in the agent's group, and a monitor that hangs can be killed with all its children.
 */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf } from '../../../platform/errors.ts';
import type { Clock } from '../../../platform/time/clock.ts';
import { readTextFile } from '../../machine/read-text-file.ts';
import type { ContainerUsage } from '../container.ts';
import { ContainerError } from '../container-errors.ts';
import { directoriesIn, pidsIn, removeCgroup, tryForError } from './cgroup.ts';
import { ExecCgroups } from './exec-cgroups.ts';
import { type Hierarchy, parseHierarchies } from './mounts.ts';

export interface RunCgroups {
  /**
   * Why memory, processor and number of processes cannot be limited here; undefined if they can.
   */
  readonly noLimitsReason: string | undefined;
  /** Control groups of exec'd programs. */
  readonly execs: ExecCgroups;
  /** Whether swap counts as memory. */
  readonly limitsSwap: boolean;
  /** The group of a run, as the OCI runtime takes it. */
  pathOf(name: string): string;
  /** Undefined if there is no such group. */
  usage(name: string): Promise<ContainerUsage | undefined>;
  /** The processes of a run, by their ids on the machine; none if there is no such group. */
  processes(name: string): Promise<readonly number[]>;
  /** Whether the kernel killed a process of the group because its memory was used up. */
  wasOutOfMemory(name: string): Promise<boolean>;
  /** Moves the monitor of a run out of the agent's group. */
  adoptMonitor(name: string, pid: number): Promise<void>;
  /** Names of all runs that have a group. */
  names(): Promise<string[]>;
  /** Kills the processes of a run and of its monitor, and removes both groups. Idempotent. */
  remove(name: string): Promise<void>;
}

interface RunCgroupsOptions {
  clock: Clock;
  /** Absolute, from the root of each tree, for example `/cnapi`. */
  parent: string;
  /** Default: that of this process. */
  mountInfo?: string;
}

const LIMITED = ['memory', 'cpu', 'pids'] as const;
/** No process can enter a new cpuset group before processors are assigned to it. */
const NEEDS_SETTINGS = 'cpuset';
const MONITOR = '.monitor';
/** A monitor ends by itself after its container. */
const MONITOR_ENDS_WITHIN_MS = 2_000;
const LIMIT_FILES = { memory: 'memory.limit_in_bytes', cpu: 'cpu.cfs_quota_us', pids: 'pids.max' } as const;
const SWAP_FILE = 'memory.memsw.limit_in_bytes';
const SWAP_FILE_V2 = 'memory.swap.max';
const NS_PER_US = 1000;

/** Makes the parent group. Does not fail: `noLimitsReason` says what is missing. */
export async function findRunCgroups(options: RunCgroupsOptions): Promise<RunCgroups> {
  const { clock, parent } = options;
  const mountInfo = options.mountInfo ?? (await readTextFile('/proc/self/mountinfo')) ?? '';
  const all = parseHierarchies(mountInfo);
  const isV1 = all.some(
    ({ version, controllers }) => version === 1 && LIMITED.some((controller) => controllers.includes(controller)),
  );
  const inside = ({ directory }: Hierarchy, name = '') => join(directory, parent, name);
  const pathOf = (controller: string) =>
    all.find(({ version, controllers }) => (isV1 ? controllers.includes(controller) : version === 2));
  const noLimitsReason = await (isV1 ? findV1Problem(all, inside) : findV2Problem(pathOf('memory'), inside));
  const memory = pathOf('memory');
  const file = async (controller: string, name: string, wanted: string) => {
    const tree = pathOf(controller);
    return tree === undefined ? undefined : readTextFile(join(inside(tree, name), wanted));
  };
  const swapFile = memory && join(inside(memory), isV1 ? SWAP_FILE : SWAP_FILE_V2);
  const pids = pathOf('pids');
  return {
    noLimitsReason,
    execs: new ExecCgroups({ clock, isV1, cgroupOf: (name) => pids && inside(pids, name) }),
    limitsSwap: swapFile !== undefined && (await readTextFile(swapFile)) !== undefined,
    pathOf: (name) => join(parent, name),
    async usage(name) {
      const [bytes, time, processes] = await Promise.all([
        file('memory', name, isV1 ? 'memory.usage_in_bytes' : 'memory.current'),
        file(isV1 ? 'cpuacct' : 'cpu', name, isV1 ? 'cpuacct.usage' : 'cpu.stat'),
        file('pids', name, 'pids.current'),
      ]);
      if (bytes === undefined || processes === undefined) return undefined;
      const cpuUs = isV1 ? Math.floor(Number(time ?? 0) / NS_PER_US) : fieldOf(time, 'usage_usec');
      return { memoryBytes: Number(bytes), cpuUs, processes: Number(processes) };
    },
    async processes(name) {
      return pids === undefined ? [] : pidsIn(inside(pids, name));
    },
    async wasOutOfMemory(name) {
      return fieldOf(await file('memory', name, isV1 ? 'memory.oom_control' : 'memory.events'), 'oom_kill') > 0;
    },
    async adoptMonitor(name, pid) {
      if (noLimitsReason !== undefined) return;
      for (const tree of all.filter(({ controllers }) => !controllers.includes(NEEDS_SETTINGS)))
        await enter(inside(tree, `${name}${MONITOR}`), pid);
    },
    async names() {
      const found = await Promise.all(all.map((tree) => directoriesIn(inside(tree))));
      return [...new Set(found.flat().map((name) => name.replace(MONITOR, '')))];
    },
    async remove(name) {
      for (const tree of all) await removeCgroup(clock, inside(tree, name), 0);
      const until = clock.now() + MONITOR_ENDS_WITHIN_MS;
      for (const tree of all) await removeCgroup(clock, inside(tree, `${name}${MONITOR}`), until - clock.now());
    },
  };
}

type Inside = (tree: Hierarchy, name?: string) => string;

async function findV1Problem(all: readonly Hierarchy[], inside: Inside): Promise<string | undefined> {
  for (const controller of LIMITED) {
    const tree = all.find(({ controllers }) => controllers.includes(controller));
    if (tree === undefined) return noLimits(`no control groups of ${controller} are mounted`);
    const cgroup = inside(tree);
    const problem = await tryForError(() => mkdir(cgroup, { recursive: true }));
    if (problem !== undefined)
      return noLimits(`the group ${cgroup} cannot be made (${problem}); run the agent as root`);
    const file = join(cgroup, LIMIT_FILES[controller]);
    if ((await readTextFile(file)) === undefined) return noLimits(`this kernel has no ${file}`);
  }
  return undefined;
}

async function findV2Problem(tree: Hierarchy | undefined, inside: Inside): Promise<string | undefined> {
  if (tree === undefined) return noLimits('no control groups are mounted');
  const there = (await readTextFile(join(tree.directory, 'cgroup.controllers')))?.trim().split(' ') ?? [];
  const missing = LIMITED.filter((controller) => !there.includes(controller));
  if (missing.length > 0)
    return noLimits(`${tree.directory} does not have ${missing.join(', ')}; delegate these controllers`);
  const wanted = LIMITED.map((controller) => `+${controller}`).join(' ');
  const problem = await tryForError(async () => {
    await mkdir(inside(tree), { recursive: true });
    for (const cgroup of [tree.directory, inside(tree)])
      await writeFile(join(cgroup, 'cgroup.subtree_control'), wanted);
  });
  if (problem === undefined) return undefined;
  return noLimits(`the group ${inside(tree)} cannot be made (${problem}); run the agent as root`);
}

const noLimits = (reason: string) => `Limits of memory, processor and processes cannot be set here: ${reason}`;

async function enter(cgroup: string, pid: number): Promise<void> {
  try {
    await mkdir(cgroup, { recursive: true });
    await writeFile(join(cgroup, 'cgroup.procs'), String(pid));
  } catch (error) {
    throw new ContainerError(`The monitor cannot enter the control group ${cgroup}: ${messageOf(error)}`, error);
  }
}

/** The number of a line `NAME NUMBER`; 0 if there is none. */
function fieldOf(text: string | undefined, name: string): number {
  return Number(new RegExp(`^${name} (\\d+)$`, 'm').exec(text ?? '')?.[1] ?? 0);
}
