/**
 * What is done inside of VMs that run: what they use, their processes, other programs, connections.
 */
import { definedFields } from '../../platform/defined-fields.ts';
import type { VmSample } from '../../protocol/streams/vm-sample.ts';
import type { VmState } from '../../protocol/vms.ts';
import type { Containers } from '../containers/containers.ts';
import { connectInside } from '../containers/network/connection.ts';
import type { ExecRequest, PreparedExec, RunConsole } from '../containers/runtime.ts';
import { readInterfaces } from './interface-counters.ts';
import { VmError, vmStateError } from './vm-errors.ts';
import { readProcesses, type VmProcess } from './vm-processes.ts';

interface RunningVmsDeps {
  containers: Pick<Containers, 'get' | 'usage' | 'processes' | 'prepareExec' | 'findConsole'>;
  /** @throws VmError if there is no such VM */
  stateOf(uuid: string): VmState;
}

/** The result of a task has room for this number. */
const MAX_PROCESSES = 300;
/**
 * Detached programs of a server. They last long, and a quarter of the places for work with streams
 * is left to them.
 */
const MAX_DETACHED = 16;

export class RunningVms {
  readonly #deps: RunningVmsDeps;
  #detached = 0;

  constructor(deps: RunningVmsDeps) {
    this.#deps = deps;
  }

  /** What the VM uses, and its limits. @throws VmError */
  async info(uuid: string): Promise<Record<string, unknown>> {
    this.#checkRunning(uuid);
    const { containers } = this.#deps;
    const [usage, pids] = await Promise.all([containers.usage(uuid), containers.processes(uuid)]);
    const { limits } = containers.get(uuid).spec;
    return {
      ...(pids[0] === undefined ? {} : { pid: pids[0] }),
      usage: { memory_bytes: usage.memoryBytes, cpu_us: usage.cpuUs, processes: usage.processes },
      limits: { memory_bytes: limits.memoryBytes, cpu_cap: limits.cpuPercent, max_lwps: limits.processes },
    };
  }

  /** The same as a sample of its statistics, with its interfaces. @throws VmError */
  async sample(uuid: string): Promise<Omit<VmSample, 'at' | 'clock_ms'>> {
    this.#checkRunning(uuid);
    const { containers } = this.#deps;
    const [usage, interfaces] = await Promise.all([
      containers.usage(uuid),
      readInterfaces(() => containers.processes(uuid)),
    ]);
    const { limits } = containers.get(uuid).spec;
    return {
      memory_bytes: usage.memoryBytes,
      cpu_us: usage.cpuUs,
      processes: usage.processes,
      memory_limit_bytes: limits.memoryBytes,
      processes_limit: limits.processes,
      ...definedFields({ interfaces }),
    };
  }

  /** At most 300 processes of the VM. @throws VmError */
  async processes(uuid: string): Promise<VmProcess[]> {
    this.#checkRunning(uuid);
    return readProcesses((await this.#deps.containers.processes(uuid)).slice(0, MAX_PROCESSES));
  }

  /**
   * Prepares another program in a running VM. It has the environment, the user and the directory of
   * the VM's own. @throws VmError, ContainerError
   */
  async prepareExec(
    uuid: string,
    { env, ...request }: Pick<ExecRequest, 'args' | 'env' | 'hasTerminal'>,
  ): Promise<PreparedExec> {
    this.#checkRunning(uuid);
    const { containers } = this.#deps;
    const { process } = containers.get(uuid).spec;
    return containers.prepareExec(uuid, { ...process, ...request, env: { ...process.env, ...env } });
  }

  /**
   * Runs a program that may last a day with nobody connected. @throws VmError if there are too many
   */
  async detached<Result>(run: () => Promise<Result>): Promise<Result> {
    if (this.#detached >= MAX_DETACHED) {
      const message = `This server runs ${MAX_DETACHED} detached programs, the maximum; cancel the task of one (vm_exec)`;
      throw new VmError('TooManyPrograms', message);
    }
    this.#detached += 1;
    try {
      return await run();
    } finally {
      this.#detached -= 1;
    }
  }

  /** The terminal of its own program; undefined if it has none. @throws VmError */
  async findConsole(uuid: string): Promise<RunConsole | undefined> {
    this.#checkRunning(uuid);
    return this.#deps.containers.findConsole(uuid);
  }

  /**
   * Connects to a port of the loopback address of the VM. @throws VmError, ContainerError, the
   * signal's reason
   */
  async connect(uuid: string, { port, signal }: { port: number; signal: AbortSignal }) {
    this.#checkRunning(uuid);
    const { containers } = this.#deps;
    const found = await connectInside({ port, signal, processes: () => containers.processes(uuid) });
    if (found === undefined) throw vmStateError(uuid, 'VmNotRunning');
    return found;
  }

  #checkRunning(uuid: string): void {
    const state = this.#deps.stateOf(uuid);
    if (state !== 'running' && state !== 'stopping') throw vmStateError(uuid, 'VmNotRunning');
  }
}
