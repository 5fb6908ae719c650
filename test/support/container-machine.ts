/**
 * Real containers for tests: a directory, a parent of control groups and a root file system from
 * busybox, all of this test alone. At its end nothing of them may be left, and what is left of a
 * failed test is removed.
 */
import {
  chmod,
  chown,
  copyFile,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  rmdir,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import type { Test } from 'tap';
import { parseHierarchies } from '../../lib/agent/containers/cgroups/mounts.ts';
import { findRunCgroups } from '../../lib/agent/containers/cgroups/run-cgroups.ts';
import type { ContainerSpec } from '../../lib/agent/containers/container.ts';
import type { ContainerExit } from '../../lib/agent/containers/lifecycle.ts';
import { allContainers, exitsOf, runtimeRoot } from '../../lib/agent/containers/linux/container-paths.ts';
import { DEFAULT_UID_RANGE } from '../../lib/agent/containers/linux/linux-host.ts';
import {
  type ContainerConnections,
  LinuxRuntime,
  type RootFileSystems,
} from '../../lib/agent/containers/linux/linux-runtime.ts';
import type { RunId } from '../../lib/agent/containers/runtime.ts';
import { allProcesses, bootIdOf } from '../../lib/agent/machine/proc.ts';
import { silentLogger } from '../../lib/platform/log.ts';
import { systemClock } from '../../lib/platform/time/clock.ts';
import { lacks, programFile } from './debian-programs.ts';
import { until } from './until.ts';

const FIRST_UID = DEFAULT_UID_RANGE.first;
const MIB = 1024 * 1024;
const APPLETS =
  'sh cat chroot dd echo false grep head id kill ls mkdir mount ps rm sleep stat sync tail touch true unshare wget';
type Deps = ConstructorParameters<typeof LinuxRuntime>[0];

/** Why real containers cannot be tested here; false if they can. */
export function lacksContainers(): string | false {
  const isRoot = process.geteuid?.() === 0;
  if (!isRoot && process.env.CNAPI_TEST_NO_SKIP !== '1') return 'containers need root';
  return lacks('runc', 'conmon', 'busybox');
}

/** A specification with `sh -c SCRIPT`, and small limits. */
export const shell = (id: string, script: string, change: Partial<ContainerSpec> = {}): ContainerSpec => ({
  id,
  hostname: `${id}.example`,
  root: { layers: [], isReadOnly: false },
  process: { args: ['/bin/sh', '-c', script], env: {}, directory: '/', uid: 0, gid: 0 },
  limits: { memoryBytes: 64 * MIB, cpuPercent: 100, processes: 64 },
  mounts: [],
  nics: [],
  resolvers: [],
  metadata: {},
  log: { maxBytes: MIB, maxFiles: 1 },
  ...change,
});

export class ContainerMachine {
  readonly directory: string;
  readonly cgroupParent: string;
  readonly #runtimes: LinuxRuntime[] = [];

  private constructor(directory: string) {
    this.directory = join(directory, 'containers');
    this.cgroupParent = `/${basename(directory)}`;
  }

  static async open(t: Test): Promise<ContainerMachine> {
    const directory = await mkdtemp(join(tmpdir(), 'cnapi-test-containers-'));
    await chmod(directory, 0o711);
    const machine = new ContainerMachine(directory);
    t.teardown(async () => {
      try {
        await machine.#removeContainers();
        await machine.#removeGroups();
      } finally {
        await rm(directory, { recursive: true, force: true });
      }
    });
    return machine;
  }

  /** The runtime of a new agent; the one before is gone. */
  async agent(change: Partial<Deps> = {}): Promise<LinuxRuntime> {
    await this.#runtimes.at(-1)?.stop();
    const runtime = new LinuxRuntime({
      clock: systemClock,
      log: silentLogger,
      directory: this.directory,
      bootId: await bootIdOf(),
      roots: busyboxRoots,
      networks: noNetworks,
      cgroupParent: this.cgroupParent,
      uidRange: DEFAULT_UID_RANGE,
      pollMs: 200,
      ...change,
    });
    this.#runtimes.push(runtime);
    await runtime.open();
    return runtime;
  }

  /** Runs it to its end. */
  async run(runtime: LinuxRuntime, spec: ContainerSpec): Promise<{ exit: ContainerExit; lines: string[] }> {
    const end = endOf(runtime, { id: spec.id, number: 1 });
    await runtime.prepare(spec);
    await runtime.start(spec, 1);
    return { exit: await end, lines: await this.lines(spec.id) };
  }

  /** What it has written to its standard output and error. */
  async lines(id: string): Promise<string[]> {
    const text = await readFile(join(allContainers(this.directory), id, 'logs/current'), 'utf8').catch(() => '');
    return text
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => line.split(' ').slice(3).join(' '));
  }

  /** Resolves when it has written a line like that. */
  async line(id: string, wanted: RegExp): Promise<string> {
    return until(async () => (await this.lines(id)).find((line) => wanted.test(line)), `${id} writes ${wanted}`);
  }

  async pid(id: string): Promise<number> {
    return Number(await readFile(join(allContainers(this.directory), id, 'pid'), 'utf8'));
  }

  async monitorPid(id: string): Promise<number> {
    return Number(await readFile(join(allContainers(this.directory), id, 'monitor-pid'), 'utf8'));
  }

  /** A file of the control group of a run, whatever tree has it. */
  async cgroupFile(name: string, file: string): Promise<string | undefined> {
    for (const parent of await this.#parents()) {
      const text = await readFile(join(parent, name, file), 'utf8').catch(() => undefined);
      if (text !== undefined) return text.trim();
    }
    return undefined;
  }

  /** Puts a process of the machine into the control groups of a run. */
  async addProcess(name: string, pid: number): Promise<void> {
    for (const parent of await this.#parents())
      await writeFile(join(parent, name, 'cgroup.procs'), String(pid)).catch(() => undefined);
  }

  /**
   * Everything that exists of containers: directories, states, exits, groups, mounts, processes.
   */
  async traces(): Promise<string[]> {
    const places = [allContainers(this.directory), exitsOf(this.directory), runtimeRoot(this.directory)];
    const files = (await Promise.all(places.map((place) => readdir(place)))).flat();
    const cgroups = await (await findRunCgroups({ clock: systemClock, parent: this.cgroupParent })).names();
    const mounts = (await readFile('/proc/self/mountinfo', 'utf8')).split('\n');
    return [
      ...files,
      ...cgroups.map((name) => `group ${name}`),
      ...mounts.filter((line) => line.includes(this.directory)),
      ...(await processesNaming(this.directory)),
    ];
  }

  async #removeContainers(): Promise<void> {
    const runtime = await this.agent({ roots: busyboxRoots, networks: noNetworks });
    for (const id of await runtime.leftovers()) await runtime.remove(id);
    await runtime.stop();
  }

  /** Fails if there is still a group in the parent. */
  async #removeGroups(): Promise<void> {
    for (const parent of await this.#parents())
      await rmdir(parent).catch((error: NodeJS.ErrnoException) => {
        if (error.code !== 'ENOENT') throw error;
      });
  }

  async #parents(): Promise<string[]> {
    const trees = parseHierarchies(await readFile('/proc/self/mountinfo', 'utf8'));
    return trees.map(({ directory }) => join(directory, this.cgroupParent));
  }
}

export async function endOf(runtime: LinuxRuntime, { id, number }: RunId): Promise<ContainerExit> {
  let found: ContainerExit | undefined;
  runtime.onEnd((ended, exit) => {
    if (ended.id === id && ended.number === number) found = exit;
  });
  return until(() => found, `the end of run ${number} of ${id}`);
}

/** busybox and its names, owned by root of the containers; layers are not used. */
const busyboxRoots: RootFileSystems = {
  async make(_spec, directory) {
    for (const path of ['', 'bin', 'tmp', 'etc'].map((name) => join(directory, name))) {
      await mkdir(path, { recursive: true });
      await chown(path, FIRST_UID, FIRST_UID);
    }
    await chmod(join(directory, 'tmp'), 0o1777);
    const busybox = join(directory, 'bin/busybox');
    await copyFile(programFile('busybox'), busybox);
    await chown(busybox, FIRST_UID, FIRST_UID);
    for (const name of APPLETS.split(' '))
      await symlink('busybox', join(directory, 'bin', name)).catch(() => undefined);
    await writeFile(join(directory, 'etc/passwd'), 'root:x:0:0:root:/:/bin/sh\n');
    return directory;
  },
  async remove(directory) {
    await rm(directory, { recursive: true, force: true });
  },
};

const noNetworks: ContainerConnections = {
  attach: async () => undefined,
  detach: async () => undefined,
};

async function processesNaming(text: string): Promise<string[]> {
  const lines = await Promise.all(
    (await allProcesses()).map(({ pid }) => readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')),
  );
  return lines.filter((line) => line.includes(text)).map((line) => `process ${line.replaceAll('\0', ' ')}`);
}
