/**
 * Carries the graph out: the work of the annealer's duty, which one instance holds. A round reads
 * the runs that have not ended, begins or ends each of them, and claims what is due. All that it
 * needs is in the rows, so the next holder goes on where this one stopped.
 *
 *     claimed ──noop, test──▶ ended
 *        └──script──▶ its task exists ──the task has ended──▶ ended
 */
import type { Bus, Subscription } from '../../platform/bus/bus.ts';
import type { Logger } from '../../platform/log.ts';
import type { Queryable } from '../../platform/postgres/database.ts';
import type { Random } from '../../platform/random.ts';
import type { Clock } from '../../platform/time/clock.ts';
import { changedIds } from '../../platform/waits/changes.ts';
import type { RoleDocument } from '../../protocol/api/documents/annealer.ts';
import type { DutyHandler, HeldDuty } from '../duty/duty.ts';
import { TICK_MS } from '../tasks/deadlines/deadline-counter.ts';
import type { TaskRow } from '../tasks/store/task.ts';
import { TaskNotFoundError } from '../tasks/store/task-errors.ts';
import { TASK_ENDS_TOPIC } from '../tasks/task-topics.ts';
import type { Tasks } from '../tasks/tasks.ts';
import { ANNEALER_TOPIC } from './annealer-topics.ts';
import type { Definitions } from './definitions.ts';
import { decideRun, decideTaskEnd, decideWithInputs, type RunStep, roleIsMissing } from './jigs.ts';
import { inputsOf } from './noderole-inputs.ts';
import {
  beginNoderoleTasks,
  claimNoderoles,
  endNoderoleRuns,
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
  definitions: Pick<Definitions, 'readRoles'>;
  tasks: Pick<Tasks, 'get' | 'endedAmong' | 'notifyAuthorities'>;
  config: AnnealerSettings;
}

type Roles = ReadonlyMap<string, RoleDocument>;

/** How often the graph is looked at when nothing is announced: a server may run again. */
const POLL_MS = 2_000;
const MAX_PER_CLAIM = 500;

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
    const { database, tasks, definitions } = this.#deps;
    const open = await readOpenRuns(database);
    const roles = await definitions.readRoles();
    const taskIds = open.flatMap(({ taskId }) => taskId ?? []);
    this.#awaitedTasks = new Set(taskIds);
    const endedTasks = new Set(taskIds.length === 0 ? [] : await tasks.endedAmong(taskIds));
    const ends: RunEnd[] = [];
    const begins: RunTask[] = [];
    for (const run of open) {
      if (run.taskId !== null && !endedTasks.has(run.taskId)) continue;
      const step = await this.#stepOf(run, roles);
      if (step.do === 'begin-task') begins.push({ runId: run.id, taskId: this.#deps.random.uuid(), ...step });
      else ends.push({ runId: run.id, ...step });
      this.#log(run, step);
    }
    if (begins.length > 0) await this.#begin(duty, begins);
    if (ends.length > 0) await endNoderoleRuns(database, duty, ends);
    const claimed = await this.#claim(duty, roles);
    return begins.length + ends.length + claimed > 0;
  }

  async #stepOf(run: OpenRun, roles: Roles): Promise<RunStep> {
    const { database } = this.#deps;
    const role = roles.get(run.role);
    if (run.taskId !== null) {
      const task = await this.#readTask(run.taskId);
      return decideTaskEnd(task, await readRunInputs(database, run.id));
    }
    if (run.isLeft) return { do: 'end', error: { code: 'Canceled', message: 'its noderole was proposed again' } };
    if (role === undefined) return roleIsMissing();
    const step = decideRun(role, run.runCount);
    if (step !== 'read-inputs') return step;
    return decideWithInputs(role, await this.#readInputs(run, role, roles));
  }

  async #readInputs({ noderoleId }: OpenRun, role: RoleDocument, roles: Roles) {
    const rows = await readRunData(this.#deps.database, noderoleId);
    const whole = rows.map(({ role: name, wall, user, ...rest }, order) => ({
      ...rest,
      order,
      data: { template: roles.get(name)?.template ?? {}, wall, user },
    }));
    const own = whole.find(({ distance }) => distance === 0)?.data ?? { template: role.template, wall: {}, user: {} };
    return inputsOf({
      own,
      ancestors: whole.flatMap(({ distance, ...rest }) =>
        distance === null || distance === 0 ? [] : { distance, ...rest },
      ),
      others: whole.flatMap(({ distance, data }) => (distance === null ? [data] : [])),
      wants: role.wants,
    });
  }

  /** Undefined: the record of the task was deleted. */
  #readTask(id: string): Promise<TaskRow | undefined> {
    return this.#deps.tasks.get(id).catch((error: unknown) => {
      if (error instanceof TaskNotFoundError) return undefined;
      throw error;
    });
  }

  async #begin(duty: HeldDuty, begins: readonly RunTask[]): Promise<void> {
    const { database, tasks } = this.#deps;
    tasks.notifyAuthorities(await beginNoderoleTasks(database, duty, begins));
  }

  async #claim(duty: HeldDuty, roles: Roles): Promise<number> {
    const { database, random, config, log } = this.#deps;
    const { annealerRuns: cap, annealerJigs: jigs } = config;
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
    // Not the message, which may quote a program of the operator.
    if (step.error === undefined) this.#deps.log.info(fields, 'noderole: its run has succeeded');
    else this.#deps.log.warn({ ...fields, code: step.error.code }, 'noderole: its run has failed');
  }
}

function policyOf({ name: role, retry, delay }: RoleDocument): RolePolicy {
  return { role, maxFailures: retry < 0 ? undefined : retry + 1, retryTicks: Math.ceil(delay / TICK_MS) };
}
