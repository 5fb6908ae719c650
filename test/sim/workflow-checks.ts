/**
 * I10: a workflow job goes from step to step, each step starts one task, and only the holder of the
 * job's duty carries it out. A cancelled job begins no further step of its chain. A job ends once,
 * as what became of its steps says, and leaves no agent paused.
 */
import type { TaskRow, WorkflowJobRow } from './changes.ts';
import type { World } from './world.ts';

/** With these a reboot may have ended its own agent. */
const ENDS_OF_A_REBOOT = ['AgentRestarted', 'AgentStopped', 'OutcomeUnknown', 'TaskTimeout'];

const DRAIN = 'begin-drain';
const UNENDED = ['queued', 'running'];
const STEP_TASKS: Readonly<Record<string, string>> = {
  [DRAIN]: 'agent_pause',
  'end-drain': 'agent_resume',
  reboot: 'server_reboot',
};

interface Seen {
  row: WorkflowJobRow;
  /** The boot time of its machine when the reboot began. */
  bootedAt: number | undefined;
  pausedAt: number | undefined;
  endedAt: number | undefined;
}

export class WorkflowChecks {
  readonly #world: World;
  readonly #jobs = new Map<string, Seen>();
  /** The tasks of steps, with the job of each. */
  readonly #tasks = new Map<string, string>();
  /** Tasks that the present statement has created. */
  readonly #made = new Set<TaskRow>();
  /** The reboots of each server, and the tasks that may have asked for one. */
  readonly #reboots = new Map<string, number>();
  readonly #rebootTasks = new Map<string, number>();
  #resumes = 0;

  constructor(world: World) {
    this.#world = world;
  }

  get counts(): Record<'workflowJobs' | 'reboots' | 'rebooted' | 'resumes', number> {
    const ended = [...this.#jobs.values()].filter(({ endedAt }) => endedAt !== undefined);
    return {
      workflowJobs: ended.length,
      reboots: [...this.#reboots.values()].reduce((sum, each) => sum + each, 0),
      rebooted: ended.filter(({ row }) => row.execution === 'succeeded').length,
      resumes: this.#resumes,
    };
  }

  get unended(): WorkflowJobRow[] {
    return [...this.#jobs.values()].flatMap(({ row }) => (UNENDED.includes(row.execution) ? [row] : []));
  }

  /** The names of agents that refuse tasks although no unfinished job has paused them. */
  get paused(): string[] {
    const needed = new Set(this.unended.map(({ server_uuid }) => server_uuid));
    return this.#world.agents.flatMap(({ agent, name, uuid }) =>
      agent?.isPaused === true && !needed.has(uuid) ? [name] : [],
    );
  }

  endedAt(id: string): number | undefined {
    return this.#jobs.get(id)?.endedAt;
  }

  /** Whether a job has told the agent of this server to refuse tasks. */
  hasPaused(serverUuid: string): boolean {
    return [...this.#jobs.values()].some(
      ({ row, pausedAt }) => row.server_uuid === serverUuid && pausedAt !== undefined,
    );
  }

  /** What callers are told of a job that has ended does not change. */
  answered(id: string, execution: string): void {
    const seen = this.#jobs.get(id);
    if (seen?.row.execution !== execution)
      this.#violated(id, `was answered as ${execution}, and is ${seen?.row.execution}`);
  }

  taskMade(task: TaskRow): void {
    this.#made.add(task);
    if (task.name === 'server_reboot') count(this.#rebootTasks, task.server_uuid);
  }

  /** A machine is told to reboot. */
  rebooted(serverUuid: string): void {
    count(this.#reboots, serverUuid);
    const [reboots = 0, tasks = 0] = [this.#reboots.get(serverUuid), this.#rebootTasks.get(serverUuid)];
    if (reboots > tasks)
      this.#world.violated(
        'I10',
        `${this.#world.nameOfServer(serverUuid)} rebooted ${reboots} times for ${tasks} tasks`,
      );
    const drained = this.unended.find(({ server_uuid, chain }) => server_uuid === serverUuid && chain.includes(DRAIN));
    if (drained !== undefined) this.#checkStillDrained(drained);
  }

  /** After all rows of a statement: each task belongs to the step that it began. */
  committed(): void {
    for (const { id, name } of this.#made)
      if (!this.#tasks.has(id)) this.#world.violated('I10', `task ${id} (${name}) belongs to no step of a job`);
    this.#made.clear();
  }

  jobChanged(before: WorkflowJobRow | null, after: WorkflowJobRow | null, who: string): void {
    if (after === null) return this.#violated(before?.id ?? '', 'was deleted');
    const seen = this.#seen(after);
    seen.row = after;
    if (before === null) return this.#checkNew(after);
    if (!UNENDED.includes(before.execution))
      return this.#violated(after.id, `changed after its end as ${before.execution}`);
    if (after.is_cancelled !== before.is_cancelled) return;
    const holder = this.#world.checks.duties.holderOf(after.id);
    if (who !== holder) this.#violated(after.id, `was changed by ${who}, but ${holder} holds its duty`);
    if (after.is_begun && !before.is_begun) this.#checkBegin(seen, before);
    else if (after.is_begun) this.#violated(after.id, `began ${stepOf(after)} twice`);
    else this.#checkMove(seen, before);
  }

  #checkNew(job: WorkflowJobRow): void {
    const others = this.unended.filter(({ server_uuid }) => server_uuid === job.server_uuid);
    if (others.length > 1) this.#violated(job.id, `is one of ${others.length} unfinished jobs of its server`);
  }

  #checkBegin(seen: Seen, before: WorkflowJobRow): void {
    const { row } = seen;
    const name = stepOf(row);
    if (before.phase !== row.phase || before.step !== row.step || before.tries !== row.tries)
      this.#violated(row.id, `began ${name}, and was at ${stepOf(before)}`);
    if (row.phase === 'chain' && row.is_cancelled) this.#violated(row.id, `began ${name} after its cancel`);
    if ((row.task !== null) !== name in STEP_TASKS) this.#violated(row.id, `began ${name} with task ${row.task}`);
    if (row.task !== null) this.#checkTask(row, row.task);
    if (name === DRAIN) seen.pausedAt = this.#world.time.now;
    if (name === 'end-drain' && row.phase === 'onerror') this.#resumes += 1;
    if (name !== 'reboot') return;
    seen.bootedAt = this.#machineOf(row)?.bootedAt;
    if (seen.pausedAt !== undefined) this.#checkDrained(row, seen.pausedAt);
  }

  #checkTask(row: WorkflowJobRow, id: string): void {
    const task = this.#world.checks.tasks.rowOf(id);
    if (this.#tasks.has(id)) this.#violated(row.id, `began ${stepOf(row)} with task ${id} of another step`);
    this.#tasks.set(id, row.id);
    if (task?.name !== STEP_TASKS[stepOf(row)] || task?.server_uuid !== row.server_uuid)
      this.#violated(row.id, `began ${stepOf(row)} with task ${task?.name} of server ${task?.server_uuid}`);
  }

  /** What ran when the agent was paused has ended, as far as its agent knows. */
  #checkDrained(row: WorkflowJobRow, pausedAt: number): void {
    const { tasks } = this.#world.checks;
    const left = tasks.unended.find(
      ({ id, server_uuid, is_accepted }) =>
        server_uuid === row.server_uuid && is_accepted && !this.#tasks.has(id) && (tasks.madeAt(id) ?? 0) < pausedAt,
    );
    if (left !== undefined) this.#violated(row.id, `reboots its server while task ${left.id} runs`);
  }

  /**
   * Whatever has become of its agent since the server was drained, the machine takes no work when
   * it reboots.
   */
  #checkStillDrained(row: WorkflowJobRow): void {
    const agent = this.#world.agents.find(({ uuid }) => uuid === row.server_uuid);
    if (agent?.agent?.isPaused !== true) this.#violated(row.id, `reboots ${agent?.name}, which takes tasks`);
    this.#checkDrained(row, Number.POSITIVE_INFINITY);
  }

  #checkMove(seen: Seen, before: WorkflowJobRow): void {
    const { row } = seen;
    const name = stepOf(before);
    const wrong = (what: string) =>
      this.#violated(row.id, `left ${name} (${before.phase} ${before.step}), but ${what}`);
    const task = before.task === null ? undefined : this.#world.checks.tasks.rowOf(before.task);
    if (task !== undefined && task.state !== 'ended') wrong(`its task ${task.id} is ${task.state}`);
    const isDone =
      task === undefined ||
      task.outcome === 'complete' ||
      (name === 'reboot' && ENDS_OF_A_REBOOT.includes(task.code ?? ''));
    const hasLeft = before.ending === null && row.ending !== null;
    if (row.ending === 'canceled' && hasLeft && !row.is_cancelled) wrong('nobody has cancelled it');
    if (row.ending === 'failed' && hasLeft && isDone) wrong('its step did not fail');
    if (before.phase === 'chain' && row.phase === 'chain' && UNENDED.includes(row.execution)) {
      const isAgain = row.step === before.step && row.tries === before.tries + 1;
      if (!isAgain && !(row.step === before.step + 1 && row.tries === 0)) wrong(`is at ${row.step}, try ${row.tries}`);
      if (!before.is_begun) wrong('the step had not begun');
      if (isAgain ? isDone : !isDone) wrong(`its task is ${task?.outcome} (${task?.code})`);
      if (!isAgain && row.is_cancelled) wrong('it goes on after its cancel');
    }
    if (before.phase === 'onerror' && (row.phase !== 'onerror' || row.step < before.step)) wrong('goes back');
    if (!UNENDED.includes(row.execution)) this.#checkEnd(seen, before, isDone);
  }

  #checkEnd(seen: Seen, before: WorkflowJobRow, isDone: boolean): void {
    const { row } = seen;
    seen.endedAt = this.#world.time.now;
    const wrong = (what: string) => this.#violated(row.id, `ended as ${row.execution}, but ${what}`);
    if (row.execution === 'canceled' && !row.is_cancelled) wrong('nobody has cancelled it');
    if (row.execution !== 'succeeded') return;
    if (before.phase !== 'chain' || before.step !== row.chain.length - 1 || !isDone)
      wrong(`its last step was not done`);
    if (this.#machineOf(row)?.bootedAt === seen.bootedAt) wrong('its server has not booted since');
  }

  #machineOf({ server_uuid }: WorkflowJobRow): { bootedAt: number } | undefined {
    return this.#world.agents.find(({ uuid }) => uuid === server_uuid)?.server;
  }

  #seen(row: WorkflowJobRow): Seen {
    const none = { bootedAt: undefined, pausedAt: undefined, endedAt: undefined };
    const seen: Seen = this.#jobs.get(row.id) ?? { row, ...none };
    this.#jobs.set(row.id, seen);
    return seen;
  }

  #violated(id: string, what: string): void {
    this.#world.violated('I10', `workflow job ${id} ${what}`);
  }
}

const stepOf = ({ phase, chain, onerror, step }: WorkflowJobRow): string =>
  (phase === 'chain' ? chain : onerror)[step] ?? '';

const count = (counts: Map<string, number>, of: string): void => void counts.set(of, (counts.get(of) ?? 0) + 1);
