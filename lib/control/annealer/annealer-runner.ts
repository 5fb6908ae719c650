/**
 * Carries the graph out: the work of the annealer's duty, which one instance holds. A round reads
 * the runs that have not ended, begins or ends each of them, and claims what is due. All that it
 * needs is in the rows, so the next holder goes on where this one stopped.
 *
 *     claimed ──noop, test──▶ ended
 *        └──script──▶ its task exists ──the task has ended──▶ ended
 */
import type { Bus, Subscription } from '../../platform/bus/bus.ts';
import { chunksOf } from '../../platform/chunks.ts';
import { isTemporary } from '../../platform/errors.ts';
import type { Logger } from '../../platform/log.ts';
import type { Queryable } from '../../platform/postgres/database.ts';
import type { Random } from '../../platform/random.ts';
import type { Clock } from '../../platform/time/clock.ts';
import { changedIds } from '../../platform/waits/changes.ts';
import type { RoleDocument } from '../../protocol/api/documents/annealer.ts';
import { type DutyHandler, DutyLostError, type HeldDuty } from '../duty/duty.ts';
import { TICK_MS } from '../tasks/deadlines/deadline-counter.ts';
import { readTask } from '../tasks/store/task-store.ts';
import { TASK_ENDS_TOPIC } from '../tasks/task-topics.ts';
import type { Tasks } from '../tasks/tasks.ts';
import type { AnnealerDocuments } from './annealer-documents.ts';
import { ANNEALER_TOPIC } from './annealer-topics.ts';
import {
  abandonedEnd,
  brokenEnd,
  decideRun,
  decideTaskEnd,
  decideWithInputs,
  type EndStep,
  missingRoleEnd,
  type RunStep,
  tooManyInputs,
} from './jigs.ts';
import { inputsOf, type RunInputs } from './noderole-inputs.ts';
import {
  beginNoderoleTasks,
  claimNoderoles,
  endNoderoleRuns,
  isSomeNoderoleDue,
  MAX_SEEN,
  type OpenRun,
  type RolePolicy,
  type RunEnd,
  type RunTask,
  readOpenRuns,
  readRunData,
  readRunInputs,
} from './run-store.ts';
import type { AnnealerSettings } from './settings.ts';

interface AnnealerRunnerDeps {
  database: Queryable;
  bus: Bus;
  clock: Clock;
  random: Random;
  log: Logger;
  documents: Pick<AnnealerDocuments, 'readRoles'>;
  tasks: Pick<Tasks, 'endedAmong' | 'notifyAuthorities'>;
  config: AnnealerSettings;
}

type Roles = ReadonlyMap<string, RoleDocument>;

/** How often the graph is looked at when nothing is announced: a server may run again. */
const POLL_MS = 2_000;
const MAX_PER_CLAIM = 500;
const MAX_PER_END = 500;
/** A run sends up to 100,000 bytes of inputs, three times, and a script. */
const MAX_PER_BEGIN = 10;

export class AnnealerRunner implements DutyHandler {
  readonly #deps: AnnealerRunnerDeps;
  #subscriptions: Subscription[] = [];
  /** The tasks of the runs that have not ended, at the instance that holds the duty. */
  #awaitedTasks: ReadonlySet<string> = new Set();
  #wake = new AbortController();

  constructor(deps: AnnealerRunnerDeps) {
    this.#deps = deps;
  }

  start(): void {
    const { bus } = this.#deps;
    this.#subscriptions = [
      bus.subscribe(ANNEALER_TOPIC, () => this.#wake.abort()),
      bus.subscribe(TASK_ENDS_TOPIC, (message) => {
        if (changedIds(message).some((id) => this.#awaitedTasks.has(id))) this.#wake.abort();
      }),
    ];
  }

  stop(): void {
    for (const subscription of this.#subscriptions) subscription.close();
    this.#subscriptions = [];
  }

  async carryOut(duty: HeldDuty, signal: AbortSignal): Promise<void> {
    try {
      for (;;) {
        signal.throwIfAborted();
        // Before the round reads, so that what changes meanwhile ends the sleep.
        this.#wake = new AbortController();
        if (!(await this.#round(duty)))
          await this.#deps.clock.sleep(POLL_MS, AbortSignal.any([this.#wake.signal, signal]));
      }
    } finally {
      this.#awaitedTasks = new Set();
    }
  }

  /** Whether there may be more to do now. */
  async #round(duty: HeldDuty): Promise<boolean> {
    const { database, tasks, documents, random } = this.#deps;
    const open = await readOpenRuns(database);
    const taskIds = open.flatMap(({ taskId }) => taskId ?? []);
    this.#awaitedTasks = new Set(taskIds);
    const endedTasks = new Set(taskIds.length === 0 ? [] : await tasks.endedAmong(taskIds));
    const ready = open.filter(({ taskId }) => taskId === null || endedTasks.has(taskId));
    const isSomeDue = await isSomeNoderoleDue(database);
    if (ready.length === 0 && !isSomeDue) return false;
    const roles = await documents.readRoles();
    const steps: { run: OpenRun; step: RunStep }[] = [];
    for (const run of ready) steps.push({ run, step: await this.#stepOf(run, roles).catch(unlessTemporary) });
    const begins = steps.flatMap(({ run: { id: runId }, step }) =>
      step.do === 'begin-task' ? [{ runId, taskId: random.uuid(), ...step }] : [],
    );
    const ends: RunEnd[] = steps.flatMap(({ run: { id: runId }, step }) =>
      step.do === 'end' ? [{ runId, ...step }] : [],
    );
    for (const some of chunksOf(begins, MAX_PER_BEGIN)) ends.push(...(await this.#begin(duty, some)));
    for (const some of chunksOf(ends, MAX_PER_END)) await this.#end(duty, some);
    for (const { run, step } of steps) this.#log(run, step);
    const claimed = isSomeDue || ends.length > 0 ? await this.#claim(duty, roles) : 0;
    return steps.length + claimed > 0;
  }

  async #stepOf(run: OpenRun, roles: Roles): Promise<RunStep> {
    const { database } = this.#deps;
    if (run.taskId !== null)
      return decideTaskEnd(await readTask(database, run.taskId), await readRunInputs(database, run.id));
    if (run.isAbandoned) return abandonedEnd();
    const role = roles.get(run.role);
    if (role === undefined) return missingRoleEnd();
    const step = decideRun(role, run.hasSucceeded);
    if (step !== 'read-inputs') return step;
    const rows = await readRunData(database, run.noderoleId);
    return rows.length > MAX_SEEN ? tooManyInputs(MAX_SEEN) : decideWithInputs(role, toInputs(rows, role, roles));
  }

  /** Returns the ends of runs that cannot begin. */
  async #begin(duty: HeldDuty, begins: readonly RunTask[]): Promise<RunEnd[]> {
    const { database, tasks } = this.#deps;
    try {
      tasks.notifyAuthorities(await beginNoderoleTasks(database, duty, begins));
      return [];
    } catch (error) {
      const broken = unlessTemporary(error);
      if (begins.length === 1) return begins.map(({ runId }) => ({ runId, ...broken }));
      const ends: RunEnd[] = [];
      for (const begin of begins) ends.push(...(await this.#begin(duty, [begin])));
      return ends;
    }
  }

  /** One end that cannot be stored becomes a failure, and the others are stored (law 9). */
  async #end(duty: HeldDuty, ends: readonly RunEnd[]): Promise<void> {
    try {
      await endNoderoleRuns(this.#deps.database, duty, ends);
    } catch (error) {
      const broken = unlessTemporary(error);
      const [first, ...others] = ends;
      if (others.length > 0) for (const end of ends) await this.#end(duty, [end]);
      // A failure of its own can always be stored, unless the fault is not in the end.
      else if (first === undefined || first.error?.code === broken.error?.code) throw error;
      else await this.#end(duty, [{ runId: first.runId, ...broken }]);
    }
  }

  async #claim(duty: HeldDuty, roles: Roles): Promise<number> {
    const { database, random, config, log } = this.#deps;
    const { annealerMaxRuns: cap, annealerJigs: jigs } = config;
    const policies = [...roles.values()].filter(({ jig }) => jigs.includes(jig)).map(policyOf);
    if (cap === 0 || policies.length === 0) return 0;
    const runIds = Array.from({ length: Math.min(cap, MAX_PER_CLAIM) }, () => random.uuid());
    const claimed = await claimNoderoles(database, duty, { runIds, cap, policies });
    for (const { runId: noderole_run, noderoleId: noderole } of claimed)
      log.info({ noderole, noderole_run }, 'noderole: todo -> transition');
    return claimed.length;
  }

  #log({ id: noderole_run, noderoleId: noderole, role, serverUuid: server_uuid }: OpenRun, step: RunStep): void {
    const fields = { noderole, noderole_run, role, server_uuid };
    if (step.do !== 'end') return;
    // The message is left out: it may quote a program of the operator.
    if (step.error === undefined) this.#deps.log.info(fields, 'noderole: its run has succeeded');
    else this.#deps.log.warn({ ...fields, code: step.error.code }, 'noderole: its run has failed');
  }
}

function toInputs(rows: Awaited<ReturnType<typeof readRunData>>, role: RoleDocument, roles: Roles): RunInputs {
  const whole = rows.map(({ role: name, wall, committedData: user, ...rest }, order) => ({
    ...rest,
    order,
    data: { template: roles.get(name)?.template ?? {}, wall, user },
  }));
  const [own, ...further] = whole;
  if (own?.distance !== 0) throw new Error(`the data of a noderole with the role ${role.name} is missing`);
  return inputsOf({
    own: own.data,
    ancestors: further.flatMap(({ distance, ...rest }) => (distance === null ? [] : { distance, ...rest })),
    others: further.flatMap(({ distance, data }) => (distance === null ? [data] : [])),
    wants: role.wants,
  });
}

/** What cannot be repeated ends the run. @throws the error if the database will accept it later */
function unlessTemporary(error: unknown): EndStep {
  if (isTemporary(error) || error instanceof DutyLostError) throw error;
  return brokenEnd(error);
}

/** A destructive role whose outcome is unknown is not repeated by itself. */
function policyOf({ name: role, retry, delay, flags }: RoleDocument): RolePolicy {
  const maxFailures = flags.includes('destructive') ? 1 : retry < 0 ? undefined : retry + 1;
  return { role, maxFailures, retryTicks: Math.ceil(delay / TICK_MS) };
}
