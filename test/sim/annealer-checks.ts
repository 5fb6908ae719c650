/**
 * I11: noderoles run in the order of their graph, one on each server, by the holder of the
 * annealer's duty; one is active only after a run on the data that is committed; and what does not
 * run has a reason.
 */
import { ANNEALER_DUTY_ID } from '../../lib/control/annealer/noderole-store.ts';
import type { NoderoleEdgeRow, NoderoleRow, NoderoleRunRow } from './changes.ts';
import { SIM_MAX_RUNS } from './sim-instance.ts';
import { type Execution, NODEROLE_OPERATION } from './sim-machine.ts';
import type { World } from './world.ts';

export class AnnealerChecks {
  readonly #world: World;
  readonly #noderoles = new Map<string, NoderoleRow>();
  readonly #edges = new Map<string, NoderoleEdgeRow>();
  readonly #runs = new Map<string, NoderoleRunRow>();
  /** The committed data of a noderole when its run began. */
  readonly #dataAtClaim = new Map<string, string>();
  readonly #tasks = new Map<string, string>();
  #hasChanged = false;
  #ended = 0;
  #repeated = 0;

  constructor(world: World) {
    this.#world = world;
  }

  get counts(): Record<'noderoleRuns' | 'activeNoderoles' | 'staleRuns', number> {
    const active = [...this.#noderoles.values()].filter(({ state }) => state === 'active').length;
    return { noderoleRuns: this.#ended, activeNoderoles: active, staleRuns: this.#repeated };
  }

  /** Committed noderoles that neither are active nor have a reason not to be. */
  get unsettled(): NoderoleRow[] {
    return [...this.#noderoles.values()].filter(({ id, state, blocked_by }) => {
      if (state === 'blocked') return blocked_by === null && !this.#isBelowProposed(id);
      return state === 'todo' || state === 'transition';
    });
  }

  noderoleChanged(before: NoderoleRow | null, after: NoderoleRow | null): void {
    this.#hasChanged = true;
    if (after === null) return void this.#noderoles.delete(before?.id ?? '');
    this.#noderoles.set(after.id, after);
    if (after.state === before?.state) return;
    if (after.state === 'transition') this.#checkBegin(after);
    if (after.state === 'active') this.#checkActive(before, after);
    const run = this.#runs.get(before?.noderole_run ?? '');
    if (run?.outcome === 'succeeded' && this.#dataAtClaim.get(run.id) !== after.data) this.#repeated += 1;
  }

  edgeChanged(before: NoderoleEdgeRow | null, after: NoderoleEdgeRow | null): void {
    this.#hasChanged = true;
    if (before !== null) this.#edges.delete(keyOf(before));
    if (after !== null) this.#edges.set(keyOf(after), after);
  }

  runChanged(before: NoderoleRunRow | null, after: NoderoleRunRow | null, who: string): void {
    if (after === null) return this.#violated(before?.noderole ?? '', 'lost the record of a run');
    this.#hasChanged = true;
    // The statement that ends a run forgets them.
    this.#runs.set(after.id, { ...after, inputs: after.inputs ?? before?.inputs ?? null });
    const holder = this.#world.checks.duties.holderOf(ANNEALER_DUTY_ID);
    if (who !== holder) this.#violated(after.noderole, `has a run that ${who} changed, but ${holder} holds the duty`);
    if (before?.is_ended) this.#violated(after.noderole, 'has a run that changed after its end');
    if (after.is_ended) this.#ended += 1;
    const { task } = after;
    if (before?.task != null && before.task !== task) this.#violated(after.noderole, 'has a run with two tasks');
    if (task === null || before?.task === task) return;
    if (this.#tasks.has(task)) this.#violated(after.noderole, `has the task ${task} of another run`);
    this.#tasks.set(task, after.id);
  }

  /** After all rows of a statement. */
  committed(): void {
    if (!this.#hasChanged) return;
    this.#hasChanged = false;
    const open = [...this.#runs.values()].filter(({ is_ended }) => !is_ended);
    for (const { server_uuid, noderole } of open)
      if (open.filter((run) => run.server_uuid === server_uuid).length > 1)
        this.#violated(noderole, 'is one of several that run on its server');
    if (open.length > SIM_MAX_RUNS)
      this.#violated(open[0]?.noderole ?? '', `is one of ${open.length} that run; at most ${SIM_MAX_RUNS} may`);
    for (const noderole of this.#noderoles.values()) this.#checkState(noderole);
  }

  /** A task that names a noderole belongs to a run, and each run has run its script once. */
  atTheEnd(): void {
    for (const { server } of this.#world.agents) {
      const ran = server.executions.filter(({ operation }) => operation.startsWith(NODEROLE_OPERATION));
      for (const [index, run] of ran.entries()) this.#checkExecution(run, ran.slice(index + 1));
      for (const operation of new Set(ran.map((run) => run.operation))) {
        const role = operation.slice(NODEROLE_OPERATION.length);
        const began = [...this.#tasks.values()].filter((id) => {
          const run = this.#runs.get(id);
          return run?.server_uuid === server.uuid && run.role === role;
        });
        const starts = ran.filter((run) => run.operation === operation).length;
        if (starts > began.length)
          this.#world.violated('I11', `${role} was started ${starts} times on a server for ${began.length} runs`);
      }
    }
  }

  isOfRun(task: string): boolean {
    return this.#tasks.has(task);
  }

  #checkExecution({ operation, endedAt }: Execution, later: readonly Execution[]): void {
    const other = later.find(({ beganAt }) => beganAt < (endedAt ?? Number.POSITIVE_INFINITY));
    if (other !== undefined) this.#world.violated('I11', `${operation} ran together with ${other.operation}`);
  }

  #checkBegin(noderole: NoderoleRow): void {
    const { id, data, noderole_run: run } = noderole;
    this.#dataAtClaim.set(run ?? '', data);
    const waited = this.#parentsOf(id).find(({ state }) => state !== 'active');
    if (waited !== undefined) this.#violated(id, `began to run while its parent ${waited.role} is ${waited.state}`);
  }

  /** Only by its own run, on what is committed. */
  #checkActive(before: NoderoleRow | null, after: NoderoleRow): void {
    const { id, data } = after;
    const run = this.#runs.get(before?.noderole_run ?? '');
    if (before?.state !== 'transition' || run === undefined)
      return this.#violated(id, `is active without a run; it was ${before?.state}`);
    if (run.noderole !== id || !run.is_ended || run.outcome !== 'succeeded')
      this.#violated(id, `is active, but its run ended as ${run.outcome}`);
    if (this.#dataAtClaim.get(run.id) !== data)
      this.#violated(id, 'is active on data that was committed after its run had begun');
    const sent = (JSON.parse(run.inputs ?? '{}') as Record<string, unknown>)[after.role];
    const own = (JSON.parse(data) as Record<string, unknown>)[after.role];
    if (run.task !== null && own !== undefined && JSON.stringify(sent) !== JSON.stringify(own))
      this.#violated(id, `is active on ${JSON.stringify(own)}, and its run was sent ${JSON.stringify(sent)}`);
  }

  #checkState({ id, state, blocked_by }: NoderoleRow): void {
    const parents = this.#parentsOf(id);
    const failed = parents.find((parent) => parent.state === 'error' || parent.blocked_by !== null);
    if (state === 'todo' && parents.some((parent) => parent.state !== 'active'))
      this.#violated(id, 'is due although a parent is not active');
    if (state === 'active' && failed !== undefined) this.#violated(id, `is active although ${failed.role} is not`);
    if (state === 'blocked' && blocked_by === null && failed !== undefined)
      this.#violated(id, `does not name what blocks it: ${failed.role} has failed`);
    if (blocked_by === null) return;
    const culprit = this.#noderoles.get(blocked_by);
    if (culprit?.state !== 'error') this.#violated(id, `is blocked by ${blocked_by}, which is ${culprit?.state}`);
    if (!this.#ancestorsOf(id).has(blocked_by)) this.#violated(id, `is blocked by ${blocked_by}, no ancestor`);
  }

  #isBelowProposed(id: string): boolean {
    return [...this.#ancestorsOf(id)].some((one) => this.#noderoles.get(one)?.state === 'proposed');
  }

  #ancestorsOf(id: string): Set<string> {
    const found = new Set<string>();
    const pending = [id];
    for (let one = pending.pop(); one !== undefined; one = pending.pop())
      for (const { id: parent } of this.#parentsOf(one)) {
        if (!found.has(parent)) pending.push(parent);
        found.add(parent);
      }
    return found;
  }

  #parentsOf(id: string): NoderoleRow[] {
    return [...this.#edges.values()].flatMap(({ parent, child }) =>
      child === id ? (this.#noderoles.get(parent) ?? []) : [],
    );
  }

  #violated(id: string, what: string): void {
    const { role, server_uuid = '' } = this.#noderoles.get(id) ?? {};
    this.#world.violated('I11', `noderole ${role} of ${this.#world.nameOfServer(server_uuid)} ${what}`);
  }
}

const keyOf = ({ parent, child }: NoderoleEdgeRow): string => `${parent} ${child}`;
