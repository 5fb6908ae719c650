/**
 * A server's machine: runs the workload's commands, `work OPERATION MS OUTCOME`, and records each.
 * MS and OUTCOME may be lists, of which each server takes one by its number. A command is a process
 * of its own: it continues when the agent dies, until it is done or its process group is ended.
 */
import type { ProcessGroup } from '../../lib/agent/journal/journal.ts';
import type { Command, CommandResult, CommandRun, Machine, Sysinfo } from '../../lib/agent/machine/machine.ts';
import { simulatedSysinfo } from '../../lib/agent/simulated/simulated-sysinfo.ts';
import type { Timer } from '../../lib/platform/time/clock.ts';
import type { TaskFrame } from '../../lib/protocol/link/frames.ts';
import { EPOCH_MS, type SimProcess } from './sim-process.ts';
import { PHASE, type VirtualTime } from './virtual-time.ts';

/** One start of a command. */
export interface Execution {
  operation: string;
  /** The push job whose command it is. */
  job: string | undefined;
  serverUuid: string;
  /** The agent process that started it. */
  agent: string;
  beganAt: number;
  endedAt: number | undefined;
  how: 'done' | 'killed' | undefined;
  exitCode: number;
  /** When the journal that recorded it was lost or rolled back. */
  forgottenAt: number | undefined;
  /** The journal was rolled back to after its task was accepted: only its start is lost. */
  isStartForgotten: boolean;
}

interface Run {
  execution: Execution;
  timer: Timer;
  over: (how: 'done' | 'killed') => void;
}

interface SimServerDeps {
  uuid: string;
  number: number;
  time: VirtualTime;
  /** Called at each start of a command. */
  began: (execution: Execution) => void;
  /** The machine's agent asks for a reboot. */
  reboot: () => void;
}

export class SimServer {
  readonly uuid: string;
  readonly number: number;
  readonly executions: Execution[] = [];
  readonly #time: VirtualTime;
  readonly #began: (execution: Execution) => void;
  readonly reboot: () => void;
  /** When it was last switched on. */
  bootedAt = 0;
  #hasPower = true;
  readonly #runs = new Map<number, Run>();
  #groups = 100;
  #boots = 1;

  constructor({ uuid, number, time, began, reboot }: SimServerDeps) {
    this.uuid = uuid;
    this.number = number;
    this.#time = time;
    this.#began = began;
    this.reboot = reboot;
  }

  get bootId(): string {
    return `${this.uuid.slice(0, 35)}${this.#boots % 10}`;
  }

  /**
   * The agent's own record of its commands is gone: nobody will end the running ones. `accepted`:
   * the tasks that the journal still has as accepted.
   */
  forgot(accepted: readonly Pick<TaskFrame, 'params'>[] = []): void {
    for (const execution of this.executions) {
      if (execution.forgottenAt !== undefined) continue;
      const { operation, job } = execution;
      execution.forgottenAt = this.#time.now;
      execution.isStartForgotten = accepted.some(({ params: { script, job: ofJob } }) =>
        job === undefined ? String(script).split(' ')[1] === operation : job === ofJob,
      );
    }
  }

  /** The machine stops: nothing on it runs any more. */
  losePower(): void {
    this.#boots += 1;
    this.#hasPower = false;
    for (const group of [...this.#runs.keys()]) this.end(group);
  }

  /** Switches the machine on. It has another boot time if it had lost its power. */
  switchOn(): void {
    if (!this.#hasPower) this.bootedAt = this.#time.now;
    this.#hasPower = true;
  }

  get now(): number {
    return this.#time.now;
  }

  newGroup(): ProcessGroup {
    this.#groups += 1;
    return { pgid: this.#groups, startTime: String(this.#groups), bootId: this.bootId };
  }

  begin(group: number, work: { execution: Execution; ms: number; over: (how: 'done' | 'killed') => void }): void {
    const { execution, ms, over } = work;
    this.executions.push(execution);
    this.#began(execution);
    const timer = this.#time.schedule(ms, PHASE.input, () => this.#over(group, 'done'));
    this.#runs.set(group, { execution, timer, over });
  }

  end(group: number): void {
    this.#over(group, 'killed');
  }

  #over(group: number, how: 'done' | 'killed'): void {
    const run = this.#runs.get(group);
    if (run === undefined) return;
    this.#runs.delete(group);
    run.timer.cancel();
    run.execution.endedAt = this.#time.now;
    run.execution.how = how;
    run.over(how);
  }
}

/** What one agent process sees of its server. */
export class SimMachine implements Machine {
  readonly bootId: string;
  readonly hostname = 'simulated';
  readonly #server: SimServer;
  readonly #process: SimProcess;

  constructor(server: SimServer, process: SimProcess) {
    this.#server = server;
    this.#process = process;
    this.bootId = server.bootId;
  }

  async sysinfo(): Promise<Sysinfo> {
    const { uuid: serverUuid, number } = this.#server;
    return simulatedSysinfo({
      serverUuid,
      number,
      agentVersion: 'simulated',
      bootedAt: EPOCH_MS + this.#server.bootedAt,
      sysinfoSize: 'small',
    });
  }

  async status(): Promise<Record<string, unknown>> {
    const memory = { total_bytes: 65_536, availrmem_bytes: 32_768, arcsize_bytes: 0 };
    return { vms: {}, meminfo: memory, diskinfo: { pool_size_bytes: 100, pool_alloc_bytes: 10 }, timestamp: '' };
  }

  async reasonNotRunnable(): Promise<undefined> {}

  async execute({ script, env }: Command, run: CommandRun): Promise<CommandResult> {
    const [, name = '', ms = '0', exitCode = '0'] = script.split(' ');
    const job = env.CHEF_PUSH_JOB_ID;
    const isFailing = env.NODEROLE_INPUTS !== undefined && failsOf(name, env.NODEROLE_INPUTS);
    const operation = job === undefined ? name : operationOfPush(job, this.#server.uuid);
    const group = this.#server.newGroup();
    await run.begin(group);
    if (run.signal.aborted) return result(null, '');
    const how = await this.#work(
      group.pgid,
      { operation, job, ms: this.#own(ms), exitCode: isFailing ? 1 : this.#own(exitCode) },
      run.signal,
    );
    if (how === 'done') run.output('stdout', 0, `${operation}\n`);
    return how === 'done' ? result(isFailing ? 1 : this.#own(exitCode), `${operation}\n`) : result(null, '');
  }

  async reboot(): Promise<void> {
    this.#server.reboot();
  }

  async rename(): Promise<void> {}

  async endGroup(group: ProcessGroup): Promise<void> {
    if (group.bootId === this.bootId) this.#server.end(group.pgid);
  }

  #own(list: string): number {
    const all = list.split(',');
    return Number(all[this.#server.number % all.length]);
  }

  #work(
    group: number,
    { operation, job, ms, exitCode }: { operation: string; job: string | undefined; ms: number; exitCode: number },
    signal: AbortSignal,
  ): Promise<'done' | 'killed'> {
    const server = this.#server;
    const { name: agent } = this.#process;
    return new Promise((resolve) => {
      const over = (how: 'done' | 'killed') => void this.#process.receive(0.2, () => resolve(how));
      const common = { operation, job, serverUuid: server.uuid, agent, beganAt: server.now, exitCode };
      server.begin(group, {
        execution: { ...common, endedAt: undefined, how: undefined, forgottenAt: undefined, isStartForgotten: false },
        ms,
        over,
      });
      signal.addEventListener('abort', () => server.end(group), { once: true });
    });
  }
}

/** The script of a role runs an operation with its name. It fails if its data says so. */
export const NODEROLE_OPERATION = 'noderole-';

const failsOf = (operation: string, inputs: string): boolean => {
  const own = (JSON.parse(inputs) as Record<string, { fails?: boolean }>)[operation.slice(NODEROLE_OPERATION.length)];
  return own?.fails === true;
};

/** The one operation of a push job's node. */
export const operationOfPush = (job: string, serverUuid: string): string => `${job}@${serverUuid}`;

function result(exitCode: number | null, stdout: string): CommandResult {
  return { exitCode, signal: exitCode === null ? 'SIGTERM' : null, stdout, stderr: '', killed: exitCode === null };
}
