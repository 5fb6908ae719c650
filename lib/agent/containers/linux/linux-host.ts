/** Finds what containers need on this machine: programs, control groups, a range of user ids. */
import { mkdir, readFile, stat } from 'node:fs/promises';
import { basename, dirname } from 'node:path';
import type { Clock } from '../../../platform/time/clock.ts';
import { findRunCgroups, type RunCgroups } from '../cgroups/run-cgroups.ts';
import { ContainerError } from '../container-errors.ts';
import { chooseRuntime } from '../oci/choose-runtime.ts';
import type { MachineFacts, UidRange } from '../oci/oci-config.ts';
import type { OciRuntime } from '../oci/oci-runtime.ts';
import { makeTraversable } from './bundle.ts';
import { allContainers, exitsOf, runtimeRoot } from './container-paths.ts';
import { findProgram, runToEnd } from './programs.ts';

export interface HostOptions {
  clock: Clock;
  /** The absolute path of the directory of all containers. */
  directory: string;
  /** User and group ids of the machine for those of containers. */
  uidRange: UidRange;
  /**
   * Parent of the control groups of runs, for example `/cnapi`; no other agent may have the same.
   */
  cgroupParent: string;
  /** The OCI runtimes that it may use, the preferred one first. Default: all that it knows. */
  runtimes?: readonly string[];
}

export interface LinuxHost {
  oci: OciRuntime;
  /** The program conmon. */
  conmon: string;
  /** Both programs with their versions, for people. */
  programs: string;
  cgroups: RunCgroups;
  facts: MachineFacts;
}

export const DEFAULT_UID_RANGE: UidRange = { first: 200_000, count: 65_536 };
const VERSION_MS = 5_000;
const OTHERS_CAN_ENTER = 0o001;

/** Makes the directories. @throws ContainerError with a sentence if no container can run here */
export async function findHost(options: HostOptions): Promise<LinuxHost> {
  const { clock, directory, uidRange, cgroupParent } = options;
  const { arch, platform } = process;
  if (platform !== 'linux') throw cannot(`this is ${platform}, not Linux`);
  if (arch !== 'x64' && arch !== 'arm64') throw cannot(`there is no list of allowed system calls for ${arch}`);
  if (process.geteuid?.() !== 0)
    throw cannot('the agent does not run as root, which alone can set up user ids and control groups; run it as root');
  const conmon = await findProgram('conmon');
  if (conmon === undefined) throw cannot('the program conmon is not installed; install the package conmon');
  await makeDirectories(directory, uidRange.first);
  const cgroups = await findRunCgroups({ clock, parent: cgroupParent });
  const { limitsSwap } = cgroups;
  const facts: MachineFacts = { uidRange, architecture: arch, limitsSwap, maxOpenFiles: await maxOpenFiles() };
  const oci = await chooseRuntime({ directory, cgroups, facts }, options.runtimes);
  const programs = (await Promise.all([oci.file, conmon].map(withVersion))).join(' and ');
  return { oci, conmon, programs, cgroups, facts };
}

const cannot = (reason: string) => new ContainerError(`No container can run on this server: ${reason}`);

async function makeDirectories(directory: string, gid: number): Promise<void> {
  await makeTraversable(directory, gid);
  await makeTraversable(allContainers(directory), gid);
  for (const path of [exitsOf(directory), runtimeRoot(directory)]) await mkdir(path, { recursive: true, mode: 0o700 });
  for (let path = dirname(directory); path !== dirname(path); path = dirname(path))
    if (((await stat(path)).mode & OTHERS_CAN_ENTER) === 0)
      throw cannot(`its users cannot pass the directory ${path}; run chmod o+x ${path}`);
}

/** The program and its version, for example `runc 1.1.5`. */
async function withVersion(file: string): Promise<string> {
  const { stdout } = await runToEnd(file, ['--version'], { timeoutMs: VERSION_MS });
  return `${basename(file)} ${/version:? (\S+)/.exec(stdout)?.[1] ?? 'of an unknown version'}`;
}

/** A process without the privilege to raise its limits cannot give more to others. */
async function maxOpenFiles(): Promise<number> {
  const limits = await readFile('/proc/self/limits', 'utf8');
  return Number(/^Max open files\s+\S+\s+(\d+)/m.exec(limits)?.[1] ?? Number.MAX_SAFE_INTEGER);
}
