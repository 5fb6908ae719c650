/** I3, and what I6 says of tasks: one end each, that which really happened, and nothing run that must not run again. */
import type { TaskRow } from './changes.ts';
import type { Execution } from './sim-machine.ts';
import type { AcceptedTask } from './workload.ts';
import type { World } from './world.ts';

export class TaskChecks {
  readonly #world: World;
  readonly #rows = new Map<string, TaskRow>();
  readonly #endedAt = new Map<string, number>();

  constructor(world: World) {
    this.#world = world;
  }

  has(id: string): boolean {
    return this.#rows.has(id);
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
    if (before?.state === 'ended') return this.#checkUnchanged(before, after);
    const step = after.attempt - (before?.attempt ?? 0);
    if (step !== 0 && !(step === 1 && before?.state === 'queued' && after.state === 'claimed'))
      this.#world.violated('I3', `task ${after.id}: attempt ${before?.attempt} -> ${after.attempt}`);
    if (after.state === 'ended') this.#noteEnd(after);
  }

  #checkUnchanged(before: TaskRow, after: TaskRow): void {
    const isSame = after.state === 'ended' && after.outcome === before.outcome && after.result === before.result;
    if (!isSame)
      this.#world.violated('I3', `task ${after.id} had ended (${before.outcome}) and changed (${after.outcome})`);
  }

  #noteEnd(task: TaskRow): void {
    this.#endedAt.set(task.id, this.#world.time.now);
    if (task.outcome === 'complete') this.#checkOutcome(task);
    // The agent knows an end that was acknowledged to it, and the database does not.
    if (task.code === 'TaskAlreadyEnded') this.#world.violated('I6', `the end of task ${task.id} was lost`);
  }

  #checkOutcome(task: TaskRow): void {
    const { exitCode, stdout } = JSON.parse(task.result ?? '{}') as { exitCode?: number; stdout?: string };
    const operation = String(stdout ?? '').trim();
    const runs = this.#executionsOf(task.server_uuid, operation);
    if (!runs.some((run) => run.how === 'done' && run.exitCode === exitCode))
      this.#world.violated('I3', `task ${task.id} is complete with ${exitCode}, which ${operation} never came to`);
  }

  #executionsOf(serverUuid: string, operation: string): Execution[] {
    const agent = this.#world.agents.find(({ uuid }) => uuid === serverUuid);
    return (agent?.server.executions ?? []).filter((run) => run.operation === operation);
  }

  /** At the end: what really ran of it on its server. */
  checkExecutions({ id, operation, idempotent }: AcceptedTask): void {
    const row = this.#rows.get(id);
    if (row === undefined) return;
    const runs = this.#executionsOf(row.server_uuid, operation);
    if (!idempotent && runs.length > 1)
      this.#world.violated('I3', `${operation} (${id}) was begun ${runs.length} times`);
    if (runs.length > 0 && row.code === 'NotTaken')
      this.#world.violated('I3', `${operation} (${id}) ran and is said not to have been taken`);
    for (const [index, run] of runs.entries()) {
      const beside = runs.slice(index + 1).find(({ beganAt }) => beganAt < (run.endedAt ?? Number.POSITIVE_INFINITY));
      if (beside !== undefined) this.#world.violated('I3', `${operation} (${id}) ran twice at once`);
    }
  }
}
