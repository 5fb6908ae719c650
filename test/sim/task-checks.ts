/**
 * I3, and I6 for tasks: each has one end, which really happened, and nothing runs that must not run
 * again.
 */
import type { TaskRow } from './changes.ts';
import { SIM_TIMES } from './sim-instance.ts';
import { type Execution, operationOfPush } from './sim-machine.ts';
import type { AcceptedTask } from './workload.ts';
import type { World } from './world.ts';

export class TaskChecks {
  readonly #world: World;
  readonly #rows = new Map<string, TaskRow>();
  readonly #madeAt = new Map<string, number>();
  /** When the database first recorded that the agent has it. */
  readonly #acceptedAt = new Map<string, number>();
  /** When the database first recorded that it had started, or its end. */
  readonly #startedAt = new Map<string, number>();
  readonly #endedAt = new Map<string, number>();

  constructor(world: World) {
    this.#world = world;
  }

  has(id: string): boolean {
    return this.#rows.has(id);
  }

  rowOf(id: string): TaskRow | undefined {
    return this.#rows.get(id);
  }

  madeAt(id: string): number | undefined {
    return this.#madeAt.get(id);
  }

  endedAt(id: string): number | undefined {
    return this.#endedAt.get(id);
  }

  get unended(): TaskRow[] {
    return [...this.#rows.values()].filter(({ state }) => state !== 'ended');
  }

  rowChanged(before: TaskRow | null, after: TaskRow | null): void {
    if (after === null) return void (before && this.#world.violated('I6', `task ${before.id} was deleted`));
    this.#rows.set(after.id, after);
    if (after.is_accepted && !this.#acceptedAt.has(after.id)) this.#acceptedAt.set(after.id, this.#world.time.now);
    if ((after.is_started || after.state === 'ended') && !this.#startedAt.has(after.id))
      this.#startedAt.set(after.id, this.#world.time.now);
    if (before === null) this.#madeAt.set(after.id, this.#world.time.now);
    if (before === null && isOfWorkflow(after)) this.#world.checks.workflows.taskMade(after);
    if (before?.state === 'ended') return this.#checkUnchanged(before, after);
    const step = after.attempt - (before?.attempt ?? 0);
    if (step !== 0 && !(step === 1 && before?.state === 'queued' && after.state === 'claimed'))
      this.#world.violated('I3', `task ${after.id}: attempt ${before?.attempt} -> ${after.attempt}`);
    if (after.state === 'ended') this.#noteEnd(after);
  }

  #checkUnchanged(before: TaskRow, after: TaskRow): void {
    const changed = (['state', 'outcome', 'result', 'code', 'attempt'] as const).filter(
      (field) => before[field] !== after[field],
    );
    for (const field of changed)
      this.#world.violated('I3', `task ${after.id} had ended, but its ${field} changed to ${after[field]}`);
  }

  #noteEnd(task: TaskRow): void {
    this.#endedAt.set(task.id, this.#world.time.now);
    if (isOfVm(task)) return this.#world.checks.vms.taskEnded(task);
    if (isOfWorkflow(task)) return;
    if (task.outcome === 'complete') return this.#checkOutcome(task);
    if (this.#hasCause(task)) return;
    const isLost = this.#executionsOf(operationOf(task)).some(({ how }) => how === 'done');
    if (isLost) this.#world.violated('I6', `task ${task.id} ran to its end, but failed with ${task.code}`);
    else this.#world.violated('I3', `task ${task.id} failed with ${task.code} without a cause`);
  }

  #checkOutcome(task: TaskRow): void {
    const { exitCode } = JSON.parse(task.result ?? '{}') as { exitCode?: number };
    const runs = this.#executionsOf(operationOf(task));
    if (!runs.some((run) => run.how === 'done' && run.exitCode === exitCode))
      this.#world.violated('I3', `task ${task.id} is complete with exit code ${exitCode}, with which no command ended`);
  }

  /** Whether the failure's claim is true in the world. */
  #hasCause(task: TaskRow): boolean {
    const ageMs = this.#world.time.now - (this.#madeAt.get(task.id) ?? 0);
    const agent = this.#world.nameOfServer(task.server_uuid);
    switch (task.code) {
      case 'Cancelled':
      case 'TaskTimeout':
        return task.is_cancelled || ageMs >= task.timeout_ms;
      case 'NotTaken':
        return ageMs >= Math.min(SIM_TIMES.taskStartByMs, task.timeout_ms);
      case 'AgentRestarted':
      case 'AgentStopped':
      case 'OutcomeUnknown':
        return this.#world.calmForMs(`agents:${agent}`) < this.#world.time.now;
      // The agent does not wait for a job that has ended, and it forgets with its process.
      case 'Aborted':
      case 'StartRefused':
        return this.#isUnwanted(task) || this.#world.calmForMs(`agents:${agent}`) < this.#world.time.now;
      case 'AgentPaused':
        return this.#world.checks.workflows.hasPaused(task.server_uuid);
      default:
        return false;
    }
  }

  /** Whether its push job, or its agent after its vote, no longer wants the task to run. */
  #isUnwanted({ job, server_uuid }: TaskRow): boolean {
    const { push } = this.#world.checks;
    return job !== null && (push.isEnding(job) || push.isWithdrawn(job, server_uuid));
  }

  #executionsOf(operation: string): Execution[] {
    return this.#world.agents.flatMap(({ server }) => server.executions.filter((run) => run.operation === operation));
  }

  /** Checks at the end a task that a caller knows of. */
  checkAnswered({ id, operation }: AcceptedTask): void {
    const task = this.#rows.get(id);
    if (task !== undefined && operationOf(task) !== operation)
      this.#world.violated('I3', `task ${id} was created for ${operation} and runs ${operationOf(task)}`);
  }

  /** Checks at the end what really ran, including tasks whose answer was lost. */
  checkExecutions(): void {
    const commands = [...this.#rows.values()].filter(
      (task) => !isOfVm(task) && !isOfWorkflow(task) && !this.#world.checks.annealer.isOfRun(task.id),
    );
    for (const operation of new Set(commands.map(operationOf))) this.#checkOperation(operation);
  }

  /** Each operation has at most one task: it is requested once, or with its key. */
  #checkOperation(operation: string): void {
    const tasks = [...this.#rows.values()].filter((task) => operationOf(task) === operation);
    const runs = this.#executionsOf(operation);
    if (tasks.length > 1) this.#world.violated('I3', `${operation} has ${tasks.length} tasks`);
    const mayRunAgain = tasks.some((task) => task.idempotent || this.#isUnknowable(task, runs));
    if (runs.length > 1 && !mayRunAgain) this.#world.violated('I3', `${operation} was started ${runs.length} times`);
    if (runs.length > 0 && tasks.some(({ code }) => code === 'NotTaken'))
      this.#world.violated('I3', `${operation} ran, but its task ended as NotTaken`);
    for (const [index, run] of runs.entries()) this.#checkRun(run, runs.slice(index + 1));
  }

  /**
   * A journal was rolled back before anybody knew of the records it lost: nothing shows it
   * (docs/testing/simulation.md).
   */
  #isUnknowable({ id }: TaskRow, runs: readonly Execution[]): boolean {
    return runs.some(({ forgottenAt, isStartForgotten }) => {
      const knownAt = (isStartForgotten ? this.#startedAt : this.#acceptedAt).get(id);
      return forgottenAt !== undefined && forgottenAt < (knownAt ?? Number.POSITIVE_INFINITY);
    });
  }

  /**
   * A command that its agent's lost journal has forgotten continues until it is done: nobody knows
   * of it (docs/testing/simulation.md).
   */
  #checkRun(run: Execution, later: readonly Execution[]): void {
    if (run.forgottenAt !== undefined && (run.endedAt ?? Number.POSITIVE_INFINITY) > run.forgottenAt) return;
    if (run.endedAt === undefined) this.#world.violated('I3', `${run.operation} continues after its task has ended`);
    if (later.some(({ beganAt }) => beganAt < (run.endedAt ?? Number.POSITIVE_INFINITY)))
      this.#world.violated('I3', `${run.operation} ran twice at the same time`);
  }
}

/** Whether the task is about a VM, without a command; `vm-checks.ts` checks the VM. */
const isOfVm = ({ name }: TaskRow): boolean => name.startsWith('machine_');

/** Whether the task is of a workflow, without a command; `workflow-checks.ts` checks the step. */
const isOfWorkflow = ({ name }: TaskRow): boolean => name === 'server_reboot' || name.startsWith('agent_');

/** The operation in the task's script: `work OPERATION MS OUTCOME`. */
const operationOf = ({ script, job, server_uuid }: TaskRow): string =>
  job === null ? (script?.split(' ')[1] ?? '') : operationOfPush(job, server_uuid);
