/** What this machine has for containers: programs, control groups, a range of user ids. */
import { mkdir, readFile, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { Clock } from '../../platform/clock.ts';
import { makePassable } from './bundle.ts';
import { type Cgroups, findCgroups } from './cgroups.ts';
import { ContainerError } from './container-errors.ts';
import { allContainers, exitsOf, runtimeRoot } from './container-paths.ts';
import { chooseRuntime } from './oci/choose-runtime.ts';
import type { MachineFacts, UidRange } from './oci/oci-config.ts';
import type { OciRuntime } from './oci/oci-runtime.ts';
import { findProgram } from './programs.ts';

export interface HostOptions {
  clock: Clock;
  /** Of all containers, absolute. */
  directory: string;
  /** User and group ids of the machine for those of containers. Default: 65,536 from 200,000. */
  uidRange?: UidRange;
  /** Parent of the control groups of runs. Default `/cnapi`. */
  cgroupParent?: string;
}

export interface Host {
  oci: OciRuntime;
  /** The program conmon. */
  conmon: string;
  cgroups: Cgroups;
  facts: MachineFacts;
}

const DEFAULT_UID_RANGE: UidRange = { first: 200_000, count: 65_536 };
const DEFAULT_PARENT = '/cnapi';
const OTHERS_CAN_ENTER = 0o001;

/** Makes the directories. @throws ContainerError with a sentence if no container can run here */
export async function findHost(options: HostOptions): Promise<Host> {
  const { clock, directory, uidRange = DEFAULT_UID_RANGE, cgroupParent = DEFAULT_PARENT } = options;
  const { arch, platform } = process;
  if (platform !== 'linux') throw cannot(`this is ${platform}, not Linux`);
  if (arch !== 'x64' && arch !== 'arm64') throw cannot(`there is no list of allowed system calls for ${arch}`);
  if (process.geteuid?.() !== 0)
    throw cannot('the agent does not run as root, which alone can set up user ids and control groups; run it as root');
  const conmon = await findProgram('conmon');
  if (conmon === undefined) throw cannot('the program conmon is not installed; install the package conmon');
  await makeDirectories(directory, uidRange.first);
  const cgroups = await findCgroups({ clock, parent: cgroupParent });
  const { limitsSwap } = cgroups;
  const facts: MachineFacts = { uidRange, architecture: arch, limitsSwap, maxOpenFiles: await maxOpenFiles() };
  return { oci: await chooseRuntime({ directory, cgroups, facts }), conmon, cgroups, facts };
}

const cannot = (reason: string) => new ContainerError(`No container can run on this server: ${reason}`);

async function makeDirectories(directory: string, gid: number): Promise<void> {
  await makePassable(directory, gid);
  await makePassable(allContainers(directory), gid);
  for (const path of [exitsOf(directory), runtimeRoot(directory)]) await mkdir(path, { recursive: true, mode: 0o700 });
  for (let path = dirname(directory); path !== dirname(path); path = dirname(path))
    if (((await stat(path)).mode & OTHERS_CAN_ENTER) === 0)
      throw cannot(`its users cannot pass the directory ${path}; run chmod o+x ${path}`);
}

/** A process without the privilege to raise its limits cannot give more to others. */
async function maxOpenFiles(): Promise<number> {
  const limits = await readFile('/proc/self/limits', 'utf8');
  return Number(/^Max open files\s+\S+\s+(\d+)/m.exec(limits)?.[1] ?? Number.MAX_SAFE_INTEGER);
}
