/**
 * Containers of Linux: an OCI runtime (runc or crun) creates them, and each run has a monitor
 * (conmon). Both are programs of the distribution. Nothing of a run depends on the agent: the next
 * one finds it by the record of the run, the state that the OCI runtime knows, and the exit status
 * that the monitor writes.
 *
 * The agent also works on a machine that cannot run containers. Then `unavailableReason` says why,
 * and methods that need the runtime fail with that sentence.
 */
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf } from '../../../platform/errors.ts';
import { Semaphore } from '../../../platform/limiting/semaphore.ts';
import type { Logger } from '../../../platform/log.ts';
import { type Clock, settlesWithin } from '../../../platform/time/clock.ts';
import { statusOfSignal } from '../../machine/exit-status.ts';
import { readTextFile } from '../../machine/read-text-file.ts';
import type { RunCgroups } from '../cgroups/run-cgroups.ts';
import type { ContainerSpec, ContainerUsage } from '../container.ts';
import { ContainerError } from '../container-errors.ts';
import type { ContainerExit } from '../lifecycle.ts';
import { monitorLimit } from '../logs/log-files.ts';
import { prepareExec } from '../oci/exec.ts';
import { buildOciLimits } from '../oci/oci-config.ts';
import { deleteOci, freezeOci, limitOci, namesOfOci, signalOci, startOci, statusOfOci } from '../oci/oci-runtime.ts';
import type { ContainerRuntime, ExecRequest, FoundRun, PreparedExec, RunConsole, RunId } from '../runtime.ts';
import { makeTraversable, writeBundle, writeLimits } from './bundle.ts';
import {
  allContainers,
  containerPaths,
  exitsOf,
  isContainerId,
  runName,
  runOfName,
  runtimeRoot,
} from './container-paths.ts';
import { ExitWatch } from './exit-watch.ts';
import { Freezer } from './freezer.ts';
import { findHost, type HostOptions, type LinuxHost } from './linux-host.ts';
import { endMonitor, startMonitor } from './monitor.ts';
import { consoleAt } from './run-console.ts';
import { readRunRecord, writeRunRecord } from './run-record.ts';

/** Makes and removes root file systems; one per container, in a directory of its own. */
export interface RootFileSystems {
  /** Idempotent: mounts it again after a restart of the machine. @returns its path */
  make(spec: ContainerSpec, directory: string): Promise<string>;
  /** Idempotent. Afterwards nothing is mounted below the directory. */
  remove(directory: string): Promise<void>;
}

/** Connects the network namespaces of containers. */
export interface ContainerConnections {
  /** `pid` is the first process of the container, which has not started its program yet. */
  attach(spec: ContainerSpec, run: number, pid: number): Promise<void>;
  /** Idempotent. */
  detach(id: string): Promise<void>;
}

interface LinuxRuntimeDeps extends HostOptions {
  clock: Clock;
  log: Logger;
  bootId: string;
  roots: RootFileSystems;
  networks: ContainerConnections;
  /** How often the agent checks for ends that the watch has missed. Default 10 s. */
  pollMs?: number;
}

const START_WITHIN_MS = 30_000;
const CONCURRENT_STARTS = 8;
const POLL_MS = 10_000;
/** A program in a container is killed just before the end of the container is known. */
const END_KNOWN_WITHIN_MS = 1_000;

export class LinuxRuntime implements ContainerRuntime {
  readonly #deps: LinuxRuntimeDeps;
  readonly #exits: ExitWatch;
  readonly #freezer: Freezer;
  readonly #starts = new Semaphore(CONCURRENT_STARTS);
  #host: LinuxHost | undefined;
  #unavailableReason: string | undefined = 'The agent has not checked yet whether it can run containers';
  #execs = 0;

  constructor(deps: LinuxRuntimeDeps) {
    this.#deps = deps;
    this.#exits = new ExitWatch({
      ...deps,
      pollMs: deps.pollMs ?? POLL_MS,
      exits: exitsOf(deps.directory),
      wasOutOfMemory: async (name) => (await this.#host?.cgroups.wasOutOfMemory(name)) ?? false,
      endUnmonitored: (run) => this.#end(run),
    });
    this.#freezer = new Freezer({
      ...deps,
      command: (run, command) => (command === 'pause' ? this.#pause(run) : this.#resume(run)),
    });
  }

  /** Finds out what the machine has. Never rejects: `unavailableReason` says what is missing. */
  async open(): Promise<void> {
    try {
      this.#host = await findHost(this.#deps);
      this.#exits.start();
      this.#unavailableReason = undefined;
    } catch (error) {
      this.#unavailableReason = messageOf(error);
    }
  }

  async stop(): Promise<void> {
    this.#exits.stop();
    this.#freezer.stop();
  }

  /** Why no container can run here, as a sentence; undefined if they can. */
  get unavailableReason(): string | undefined {
    return this.#unavailableReason;
  }

  /** Why limits cannot be set here, as a sentence; undefined if they can. */
  get noLimitsReason(): string | undefined {
    return this.#host?.cgroups.noLimitsReason;
  }

  /** What runs containers here, with versions; undefined if they cannot run. */
  get programs(): string | undefined {
    return this.#host?.programs;
  }

  async prepare(spec: ContainerSpec): Promise<void> {
    checkHasLimits(this.#needHost().cgroups);
    // A container that was removed incompletely: the new one must not have its changes, or its run.
    if ((await this.leftovers()).includes(spec.id)) await this.remove(spec.id);
    await this.makeRoot(spec);
  }

  /** A start that fails leaves nothing. */
  start(spec: ContainerSpec, run: number): Promise<void> {
    const runId = { id: spec.id, number: run };
    return this.#starts.run(async () => {
      try {
        await this.#start(spec, runId);
      } catch (error) {
        await this.cleanUpRun(runId);
        throw error;
      }
    });
  }

  async signal(run: RunId, signal: string): Promise<void> {
    await signalOci(this.#needHost().oci, runName(run), signal);
  }

  async prepareExec(run: RunId, request: ExecRequest): Promise<PreparedExec> {
    const { oci, facts, cgroups } = this.#needHost();
    const { clock, directory } = this.#deps;
    this.#execs += 1;
    const id = `exec-${process.pid}-${this.#execs}`;
    const place = { run: runName(run), id, directory: join(containerPaths(directory, run.id).execs, id) };
    const deps = { clock, oci, cgroups: cgroups.execs, maxOpenFiles: facts.maxOpenFiles };
    const exec = await prepareExec(deps, request, place);
    const ended = this.#ended(run);
    return {
      argv: exec.argv,
      programEnd: (signal) => exec.programEnd(signal),
      kill: () => exec.kill(),
      finish: async (end) => {
        try {
          const outcome = await exec.finish(end);
          const exitCode = typeof outcome === 'object' && 'exitCode' in outcome ? outcome.exitCode : undefined;
          if (end.killed || exitCode !== statusOfSignal('SIGKILL')) return outcome;
          const isKnown = await settlesWithin(clock, END_KNOWN_WITHIN_MS, ended.promise);
          // Its monitor may be slow.
          return isKnown || (await this.processes(run)).length === 0 ? 'container-ended' : outcome;
        } finally {
          ended.cancel();
        }
      },
    };
  }

  async findConsole(run: RunId): Promise<RunConsole | undefined> {
    const paths = containerPaths(this.#deps.directory, run.id);
    const record = await readRunRecord(paths);
    return record?.run === run.number && record.hasTerminal === true ? consoleAt(paths) : undefined;
  }

  async usage(run: RunId): Promise<ContainerUsage | undefined> {
    return this.#needHost().cgroups.usage(runName(run));
  }

  async processes(run: RunId): Promise<readonly number[]> {
    const pids = await this.#needHost().cgroups.processes(runName(run));
    const first = Number(await readTextFile(containerPaths(this.#deps.directory, run.id).pid));
    return pids.includes(first) ? [first, ...pids.filter((pid) => pid !== first)] : pids;
  }

  async updateLimits(spec: ContainerSpec, run: number): Promise<void> {
    const { oci, cgroups } = this.#needHost();
    if (cgroups.noLimitsReason !== undefined) return;
    const file = await writeLimits(containerPaths(this.#deps.directory, spec.id), buildOciLimits(spec, cgroups));
    await limitOci(oci, runName({ id: spec.id, number: run }), file);
  }

  /** Mounts the root file system if it is not. @returns its path */
  async makeRoot(spec: ContainerSpec): Promise<string> {
    const { facts } = this.#needHost();
    const { directory, roots } = this.#deps;
    const paths = containerPaths(directory, spec.id);
    await makeTraversable(paths.bundle, facts.uidRange.first);
    return roots.make(spec, paths.root);
  }

  /** Pauses the processes of a run during the work. */
  freeze(run: RunId, work: () => Promise<void>): Promise<void> {
    return this.#freezer.during(run, work);
  }

  #pause(run: RunId): Promise<void> {
    return freezeOci(this.#needHost().oci, runName(run), 'pause');
  }

  /** Does nothing if the processes are not paused. */
  async #resume(run: RunId): Promise<void> {
    const { oci } = this.#needHost();
    const name = runName(run);
    try {
      await freezeOci(oci, name, 'resume');
    } catch (error) {
      if ((await statusOfOci(oci, name)) === 'paused') throw error;
    }
  }

  async find(run: RunId): Promise<FoundRun> {
    const exit = await this.#exits.exitOf(run);
    if (exit !== undefined) return { exit };
    const record = await readRunRecord(containerPaths(this.#deps.directory, run.id));
    if (record === undefined || record.run !== run.number) return 'not-started';
    if (record.bootId !== this.#deps.bootId) return { exit: unknown('The machine restarted while it ran') };
    const status = await statusOfOci(this.#needHost().oci, runName(run));
    if (status === 'creating' || status === 'created') return 'not-started';
    if (status === undefined) return { exit: unknown('The container runtime does not know it any more') };
    // An agent was killed while it took a snapshot.
    if (status === 'paused') await this.#resume(run);
    await this.#endExecs(run);
    // Also one that has just stopped: its monitor is about to write how, or is gone.
    this.#exits.add(run, record.monitor);
    return 'running';
  }

  /** Kills the programs that an earlier agent ran in the container, and did not see the end of. */
  async #endExecs(run: RunId): Promise<void> {
    const { directory, log } = this.#deps;
    try {
      await this.#needHost().cgroups.execs.killAll(runName(run));
      await rm(containerPaths(directory, run.id).execs, { recursive: true, force: true });
    } catch (err) {
      log.error({ err, container: run.id }, 'containers: programs of an earlier agent cannot be ended');
    }
  }

  onEnd(listener: (run: RunId, exit: ContainerExit) => void): void {
    this.#exits.onEnd(listener);
  }

  async cleanUpRun(run: RunId): Promise<void> {
    const { directory, networks } = this.#deps;
    const paths = containerPaths(directory, run.id);
    this.#exits.forget(run);
    void this.#freezer.forget(run);
    await this.#end(run);
    await networks.detach(run.id);
    await rm(join(exitsOf(directory), runName(run)), { force: true });
    for (const path of [...paths.ofRun, paths.execs]) await rm(path, { recursive: true, force: true });
  }

  async remove(id: string): Promise<void> {
    const { directory, roots, networks } = this.#deps;
    const { bundle, root } = containerPaths(directory, id);
    for (const run of (await this.#runs()).filter((one) => one.id === id)) await this.cleanUpRun(run);
    await networks.detach(id);
    await roots.remove(root);
    await rm(bundle, { recursive: true, force: true });
  }

  async leftovers(): Promise<string[]> {
    const names = await readdir(allContainers(this.#deps.directory)).catch(() => []);
    const ids = (await this.#runs()).map(({ id }) => id);
    return [...new Set([...names.filter(isContainerId), ...ids])];
  }

  #needHost(): LinuxHost {
    if (this.#host === undefined) throw new ContainerError(this.#unavailableReason ?? 'The agent is stopping');
    return this.#host;
  }

  async #start(spec: ContainerSpec, run: RunId): Promise<void> {
    const { clock, directory, networks, bootId } = this.#deps;
    const { oci, conmon, cgroups, facts } = this.#needHost();
    const name = runName(run);
    const paths = containerPaths(directory, run.id);
    // The machine may have restarted without control groups since the container was created.
    checkHasLimits(cgroups);
    await writeBundle(spec, { paths, facts, root: await this.makeRoot(spec), cgroup: cgroups.pathOf(name) });
    const deps = { clock, directory, cgroups, file: conmon, oci };
    const hasTerminal = spec.process.hasTerminal === true;
    const request = { name, paths, hasTerminal, logMaxBytes: monitorLimit(spec.log), timeoutMs: START_WITHIN_MS };
    const created = await startMonitor(deps, request);
    await networks.attach(spec, run.number, created.pid);
    await writeRunRecord(paths, { run: run.number, bootId, hasTerminal, ...created });
    await startOci(oci, name, START_WITHIN_MS);
    this.#exits.add(run, created.monitor);
  }

  /** Afterwards no process and no control group of the run is left, its monitor included. */
  async #end(run: RunId): Promise<void> {
    const { oci, cgroups } = this.#needHost();
    const { clock, directory, bootId } = this.#deps;
    const name = runName(run);
    await deleteOci(oci, name);
    if (cgroups.noLimitsReason === undefined) return cgroups.remove(name);
    const record = await readRunRecord(containerPaths(directory, run.id));
    if (record?.run === run.number && record.bootId === bootId) await endMonitor(clock, record.monitor);
  }

  /** All runs that left something outside of the directories of their containers. */
  async #runs(): Promise<RunId[]> {
    const { directory } = this.#deps;
    const lists = await Promise.all([
      namesOfOci(runtimeRoot(directory)),
      readdir(exitsOf(directory)).catch(() => []),
      this.#host?.cgroups.names() ?? [],
    ]);
    return [...new Set(lists.flat())].flatMap((name) => runOfName(name) ?? []);
  }

  /** Settles when the run has ended, immediately if it is not known to run. */
  #ended(run: RunId): { promise: Promise<void>; cancel(): void } {
    if (!this.#exits.has(run)) return { promise: Promise.resolve(), cancel: () => undefined };
    const { promise, resolve } = Promise.withResolvers<void>();
    const cancel = this.#exits.onEnd(({ id, number }) => void (id === run.id && number === run.number && resolve()));
    return { promise, cancel };
  }
}

/** @throws ContainerError where limits cannot be set: no container may run without them */
function checkHasLimits({ noLimitsReason }: RunCgroups): void {
  if (noLimitsReason !== undefined) throw new ContainerError(noLimitsReason);
}

const unknown = (sentence: string): ContainerExit => ({ unknown: sentence });
