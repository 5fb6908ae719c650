/** The real machine: Linux, through /proc, /sys and processes. */
import { execFile } from 'node:child_process';
import { readFile, statfs } from 'node:fs/promises';
import { hostname } from 'node:os';
import { promisify } from 'node:util';
import { type Clock, isoNow } from '../../platform/time/clock.ts';
import type { ProcessGroup } from '../journal/journal.ts';
import { keptBootTime, readBootTime } from './boot-time.ts';
import { killGroupAtOnce, runCommand } from './command.ts';
import { memoryField, readSysinfo } from './linux-sysinfo.ts';
import {
  type Command,
  type CommandResult,
  type CommandRun,
  diskInfo,
  type Machine,
  type StreamedCommand,
  type StreamedResult,
  type Sysinfo,
  type TaskAddress,
  type ToldWork,
} from './machine.ts';
import { allProcesses, bootIdOf, signalProcess } from './proc.ts';
import { renameHost } from './rename-host.ts';
import { launchRefusal } from './run-as.ts';
import { streamCommand } from './streamed-command.ts';

interface LinuxMachineDeps {
  clock: Clock;
  serverUuid: string;
  agentVersion: string;
  /** Directory of the scripts of running commands. */
  runDirectory: string;
  /** Keeps the time of the boot; undefined: it is read anew by each agent. */
  bootFile?: string;
  taskAddress?: TaskAddress | undefined;
  /** Override those of the kernel's command line. */
  bootParameters?: Record<string, string> | undefined;
  /** Whether containers can run here, as a sentence; undefined if the agent has none. */
  containers?: string | undefined;
  allows?: ToldWork;
  /** The packages, as sysinfo shows them. */
  packages?: { sysinfo(): Sysinfo; onChange(listener: () => void): () => void } | undefined;
  /** Undefined if the machine has no encrypted zpool. */
  recovery?: { readonly sysinfo: Sysinfo; onChange(listener: () => void): () => void } | undefined;
  /** What the agent keeps for the sysinfo. */
  settings?: { complete(sysinfo: Sysinfo): Sysinfo; onChange(listener: () => void): () => void } | undefined;
}

const BYTES_PER_KIB = 1024;

export async function openLinuxMachine(deps: LinuxMachineDeps): Promise<Machine> {
  const bootId = await bootIdOf();
  const bootTime = await (deps.bootFile === undefined ? readBootTime() : keptBootTime(deps.bootFile, bootId));
  return new LinuxMachine(deps, { bootId, bootTime });
}

class LinuxMachine implements Machine {
  readonly bootId: string;
  readonly #bootTime: string | undefined;
  readonly #deps: LinuxMachineDeps;

  constructor(deps: LinuxMachineDeps, { bootId, bootTime }: { bootId: string; bootTime: string | undefined }) {
    this.#deps = deps;
    this.bootId = bootId;
    this.#bootTime = bootTime;
  }

  get hostname(): string {
    return hostname();
  }

  async sysinfo(): Promise<Sysinfo> {
    const { serverUuid: uuid, agentVersion, taskAddress, bootParameters, containers, packages } = this.#deps;
    const { recovery, settings, allows } = this.#deps;
    const about = { uuid, agentVersion, taskAddress, bootParameters, containers, allows };
    const facts = { ...about, bootTime: this.#bootTime, packages: packages?.sysinfo() };
    const sysinfo = { ...(await readSysinfo(facts)), ...recovery?.sysinfo };
    return settings?.complete(sysinfo) ?? sysinfo;
  }

  onSysinfoChange(listener: () => void): () => void {
    const { recovery, settings, packages } = this.#deps;
    const unlisten = [recovery, settings, packages].map((part) => part?.onChange(listener));
    return () => {
      for (const stop of unlisten) stop?.();
    };
  }

  async status(): Promise<Record<string, unknown>> {
    const [meminfo, disk] = await Promise.all([readMeminfo(), statfs('/')]);
    const bootTime = this.#bootTime;
    const size = disk.blocks * disk.bsize;
    return {
      vms: {},
      meminfo,
      diskinfo: diskInfo({ sizeBytes: size, usedBytes: size - disk.bfree * disk.bsize }),
      ...(bootTime === undefined ? {} : { boot_time: new Date(Number(bootTime) * 1000).toISOString() }),
      timestamp: isoNow(this.#deps.clock),
    };
  }

  reasonNotRunnable(command: Command): Promise<string | undefined> {
    return launchRefusal(this.#deps.clock, command);
  }

  execute(command: Command, run: CommandRun): Promise<CommandResult> {
    return runCommand(
      { clock: this.#deps.clock, directory: this.#deps.runDirectory, bootId: this.bootId },
      command,
      run,
    );
  }

  stream(command: StreamedCommand, run: Omit<CommandRun, 'output'>): Promise<StreamedResult> {
    return streamCommand(
      { clock: this.#deps.clock, directory: this.#deps.runDirectory, bootId: this.bootId },
      command,
      run,
    );
  }

  async reboot(): Promise<void> {
    await promisify(execFile)('reboot');
  }

  rename(hostname: string): Promise<void> {
    return renameHost(hostname);
  }

  /**
   * Kills all processes of the leader's session and their descendants, which lead sessions of their
   * own in a terminal. They are the agent's own unless the leader's pid has been reused.
   */
  async endGroup(group: ProcessGroup): Promise<void> {
    if (group.bootId !== this.bootId) return;
    const processes = await allProcesses();
    const leader = processes.find(({ pid }) => pid === group.pgid);
    if (leader && leader.startTime !== group.startTime) return;
    const ended = new Set<number>();
    for (const { pid, session, pgid } of processes) if (session === group.pgid || pgid === group.pgid) ended.add(pid);
    for (let before = 0; before < ended.size; ) {
      before = ended.size;
      for (const { pid, parent } of processes) if (ended.has(parent)) ended.add(pid);
    }
    for (const pid of ended) signalProcess(pid, 'SIGKILL');
    await killGroupAtOnce(this.#deps.clock, group.pgid);
  }
}

async function readMeminfo(): Promise<Record<string, number>> {
  const text = await readFile('/proc/meminfo', 'utf8');
  return {
    total_bytes: (memoryField(text, 'MemTotal') ?? 0) * BYTES_PER_KIB,
    availrmem_bytes: (memoryField(text, 'MemAvailable') ?? 0) * BYTES_PER_KIB,
    arcsize_bytes: 0,
  };
}
