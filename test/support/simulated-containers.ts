/**
 * Containers in memory, for tests. The host outlives its agents, as a machine
 * does: each agent gets a runtime of its own (`runtime`), and what runs goes on when that is
 * stopped. The first process sleeps (`sleep SECONDS`), ends at once (`true`, `false`, `exit CODE`),
 * or runs until a signal ends it.
 */

import { once } from 'node:events';
import type { Container, ContainerSpec, ContainerUsage } from '../../lib/agent/containers/container.ts';
import { ContainerError } from '../../lib/agent/containers/container-errors.ts';
import type { ContainerExit } from '../../lib/agent/containers/lifecycle.ts';
import type { RootSnapshots } from '../../lib/agent/containers/root/root-snapshots.ts';
import type {
  ContainerRuntime,
  ExecRequest,
  FoundRun,
  PreparedExec,
  RunId,
} from '../../lib/agent/containers/runtime.ts';
import type { Clock, Timer } from '../../lib/platform/time/clock.ts';

interface SimulatedRun {
  run: number;
  startedAt: number;
  timer: Timer | undefined;
  exit: ContainerExit | undefined;
}

interface SimulatedRoot {
  spec: ContainerSpec;
  /** The last run; undefined before the first one, and when it is cleaned up. */
  last: SimulatedRun | undefined;
  snapshots: Set<string>;
}

/** Signals that a program without handlers ignores. */
const IGNORED = new Set(['SIGCHLD', 'SIGCONT', 'SIGURG', 'SIGWINCH']);
const MIB = 1024 * 1024;
const US_PER_MS = 1000;

export class SimulatedContainerHost {
  readonly #clock: Clock;
  readonly #roots = new Map<string, SimulatedRoot>();
  readonly #runtimes = new Set<SimulatedRuntime>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** What an agent of this machine works with. */
  runtime(): ContainerRuntime {
    const runtime = new SimulatedRuntime(this, () => void this.#runtimes.delete(runtime));
    this.#runtimes.add(runtime);
    return runtime;
  }

  /** Remembers names only: a program in memory has no files. */
  get snapshots(): RootSnapshots {
    const namesOf = ({ spec }: Container) => {
      const root = this.#roots.get(spec.id);
      if (root === undefined) throw new ContainerError(`There is no root file system of ${spec.id}`);
      return root.snapshots;
    };
    return {
      take: async (container, name) => void namesOf(container).add(name),
      restore: async (container, name) => {
        if (!namesOf(container).has(name)) throw new ContainerError(`There is no snapshot ${name}`);
      },
      measure: async (container) => namesOf(container).size,
      exportLayer: async (container) => void namesOf(container),
      keepOnly: async (container, names) => {
        const known = namesOf(container);
        for (const name of known) if (!names.includes(name)) known.delete(name);
        return [...known];
      },
      remove: async (container, name) => void namesOf(container).delete(name),
    };
  }

  /** Ids of the containers with a root file system. */
  get ids(): string[] {
    return [...this.#roots.keys()];
  }

  /** Every run ends unseen, as in a restart of the machine. */
  restart(): void {
    for (const root of this.#roots.values()) {
      root.last?.timer?.cancel();
      root.last = undefined;
    }
  }

  prepare(spec: ContainerSpec): void {
    if (this.#roots.has(spec.id)) throw new ContainerError(`There is a root file system of ${spec.id} already`);
    this.#roots.set(spec.id, { spec, last: undefined, snapshots: new Set() });
  }

  start({ id, process }: ContainerSpec, run: number): void {
    const root = this.#roots.get(id);
    if (root === undefined) throw new ContainerError(`There is no root file system of ${id}`);
    if (root.last !== undefined) throw new ContainerError(`Run ${root.last.run} of ${id} was not cleaned up`);
    const [program = '', argument] = process.args;
    const started: SimulatedRun = { run, startedAt: this.#clock.wallTime(), timer: undefined, exit: undefined };
    root.last = started;
    const end = (code: number, afterMs: number) => {
      started.timer = this.#clock.after(afterMs, () => this.#end(id, started, { code }));
    };
    if (program === 'sleep') end(0, Number(argument) * 1000);
    else if (program === 'true') end(0, 0);
    else if (program === 'false') end(1, 0);
    else if (program === 'exit') end(Number(argument), 0);
  }

  signal(runId: RunId, signal: string): void {
    const run = this.#run(runId);
    if (run !== undefined && run.exit === undefined && !IGNORED.has(signal)) this.#end(runId.id, run, { signal });
  }

  usage(runId: RunId): ContainerUsage | undefined {
    const run = this.#run(runId);
    if (run === undefined || run.exit !== undefined) return undefined;
    const cpuUs = (this.#clock.wallTime() - run.startedAt) * US_PER_MS;
    return { memoryBytes: 8 * MIB, cpuUs, processes: 1 };
  }

  find(runId: RunId): FoundRun {
    const run = this.#run(runId);
    if (run === undefined) return 'not-started';
    return run.exit === undefined ? 'running' : { exit: run.exit };
  }

  cleanUpRun(runId: RunId): void {
    const root = this.#roots.get(runId.id);
    const run = this.#run(runId);
    if (root === undefined || run === undefined) return;
    run.timer?.cancel();
    root.last = undefined;
  }

  remove(id: string): void {
    this.#roots.get(id)?.last?.timer?.cancel();
    this.#roots.delete(id);
  }

  #run({ id, number }: RunId): SimulatedRun | undefined {
    const last = this.#roots.get(id)?.last;
    return last?.run === number ? last : undefined;
  }

  #end(id: string, run: SimulatedRun, exit: ContainerExit): void {
    run.timer?.cancel();
    run.exit = exit;
    for (const runtime of this.#runtimes) runtime.ended({ id, number: run.run }, exit);
  }
}

class SimulatedRuntime implements ContainerRuntime {
  readonly #host: SimulatedContainerHost;
  readonly #onStop: () => void;
  #listener: ((run: RunId, exit: ContainerExit) => void) | undefined;

  constructor(host: SimulatedContainerHost, onStop: () => void) {
    this.#host = host;
    this.#onStop = onStop;
  }

  ended(run: RunId, exit: ContainerExit): void {
    this.#listener?.(run, exit);
  }

  async prepare(spec: ContainerSpec): Promise<void> {
    this.#host.prepare(spec);
  }

  async start(spec: ContainerSpec, run: number): Promise<void> {
    this.#host.start(spec, run);
  }

  async signal(run: RunId, signal: string): Promise<void> {
    this.#host.signal(run, signal);
  }

  /** Prints what it is asked to run. */
  async prepareExec(_run: RunId, { args }: ExecRequest): Promise<PreparedExec> {
    const isOver = async (signal: AbortSignal) => void (signal.aborted || (await once(signal, 'abort')));
    return { argv: ['echo', ...args], programEnd: isOver, kill: async () => undefined, finish: async (end) => end };
  }

  /** A program in memory has no terminal. */
  async findConsole(): Promise<undefined> {
    return undefined;
  }

  async usage(run: RunId): Promise<ContainerUsage | undefined> {
    return this.#host.usage(run);
  }

  /** A simulated container has no processes of the machine. */
  async processes(): Promise<readonly number[]> {
    return [];
  }

  async updateLimits(): Promise<void> {
    // A program in memory needs none.
  }

  async find(run: RunId): Promise<FoundRun> {
    return this.#host.find(run);
  }

  onEnd(listener: (run: RunId, exit: ContainerExit) => void): void {
    this.#listener = listener;
  }

  async cleanUpRun(run: RunId): Promise<void> {
    this.#host.cleanUpRun(run);
  }

  async remove(id: string): Promise<void> {
    this.#host.remove(id);
  }

  async leftovers(): Promise<string[]> {
    return this.#host.ids;
  }

  async stop(): Promise<void> {
    this.#onStop();
  }
}
