/**
 * Carries out the workflow jobs whose duties this instance holds. `workflow.ts` decides; each state
 * is stored before its effect, or with it: a step and its task are begun by one statement. So the
 * next holder continues from what the row says, and starts nothing twice. Owned by
 * `workflow-jobs.ts`.
 *
 *     read ──▶ due: begin the step ──▶ read …
 *       ▲      begun: its task has ended, its work is done, its time is up ──▶ store that ──▶ read …
 *       └───── otherwise wait for that (`step-waits.ts`)
 */
import type { Bus, Subscription } from '../../platform/bus/bus.ts';
import { CnapiError, isTemporary, messageOf } from '../../platform/errors.ts';
import type { Logger } from '../../platform/log.ts';
import type { Queryable } from '../../platform/postgres/database.ts';
import type { Random } from '../../platform/random.ts';
import type { Clock } from '../../platform/time/clock.ts';
import { changedIds, publishChanges } from '../../platform/waits/changes.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import { hasSecrets, maskParams } from '../../protocol/secret-params.ts';
import { taskKind } from '../../protocol/tasks.ts';
import type { DutyHandler, HeldDuty } from '../duty/duty.ts';
import { CORE_PARTS } from '../servers/server-store.ts';
import { ServerNotFoundError, type Servers } from '../servers/servers.ts';
import type { TaskRow } from '../tasks/store/task.ts';
import { orRefusal, TaskEndedError, TaskNotCancellableError, TaskNotFoundError } from '../tasks/store/task-errors.ts';
import { readTask } from '../tasks/store/task-store.ts';
import { TASK_ENDS_TOPIC } from '../tasks/task-topics.ts';
import type { Tasks } from '../tasks/tasks.ts';
import { TICKETS_TOPIC } from '../waitlist/waitlist.ts';
import { buildPlan, type StepWork, type WorkflowStep, workflowStep } from './definitions.ts';
import { ProvisionSteps, type ProvisionStepsDeps } from './provision-steps.ts';
import { ServerChanges, type ServerChangesDeps, WorkflowJobMovedError } from './server-changes.ts';
import {
  beginWorkflowStep,
  type HeldWorkflowJob,
  moveWorkflowJob,
  readHeldWorkflowJob,
  type StepTask,
} from './step-store.ts';
import { type StepCondition, StepWaits, type StepWaitsDeps } from './step-waits.ts';
import { decideStepResult } from './task-end.ts';
import {
  type Plan,
  type StepPosition,
  stepOf,
  stepWorkflow,
  type WorkflowEvent,
  type WorkflowState,
} from './workflow.ts';
import { WORKFLOW_CHANGES_TOPIC, WORKFLOW_ENDS_TOPIC } from './workflow-topics.ts';

export interface WorkflowRunnerDeps {
  database: Queryable;
  bus: Bus;
  clock: Clock;
  random: Random;
  log: Logger;
  tasks: Pick<Tasks, 'cancel' | 'unfinished' | 'notifyAuthorities'> & StepWaitsDeps['tasks'];
  servers: Pick<Servers, 'get' | 'markRebooting'> & ServerChangesDeps['servers'] & StepWaitsDeps['servers'];
  waitlist: ProvisionStepsDeps['waitlist'];
}

/** A job that is not ended. */
type Unfinished = Exclude<WorkflowState, { name: 'ended' }>;

type TaskWork = Extract<StepWork, { kind: 'task' }>;

/** What this instance works on. */
interface CurrentStep {
  duty: HeldDuty;
  job: HeldWorkflowJob;
  plan: Plan;
  state: Unfinished;
  step: WorkflowStep;
  stepName: string;
}

/** What has become of a step. */
interface Outcome {
  event: Extract<WorkflowEvent, { type: 'done' | 'failed' | 'timed-out' | 'cancel' }>;
  error?: { code: string; message: string };
  /**
   * What a step that is done stores: `OK`, or the code of the error with which its task ended all
   * the same.
   */
  result?: string;
}

/** What the work on a job does next; `reload`: its row has changed. */
type Next = 'reload' | 'wait' | 'retry-later';

/** The pause before a step is tried again. */
const RETRY_MS = 1_000;
const MAX_MESSAGE_CHARS = 500;

export class WorkflowRunner implements DutyHandler {
  readonly #deps: WorkflowRunnerDeps;
  readonly #waits: StepWaits;
  readonly #changes: ServerChanges;
  readonly #provisioning: ProvisionSteps;
  #subscriptions: Subscription[] = [];

  constructor(deps: WorkflowRunnerDeps) {
    this.#deps = deps;
    this.#waits = new StepWaits(deps);
    this.#changes = new ServerChanges(deps);
    this.#provisioning = new ProvisionSteps(deps);
  }

  start(): void {
    const { bus } = this.#deps;
    this.#waits.start();
    this.#subscriptions = [
      bus.subscribe(WORKFLOW_CHANGES_TOPIC, (message) => this.#waits.wakeJobs(changedIds(message))),
      // A ticket has the uuid of its job.
      bus.subscribe(TICKETS_TOPIC, (message) => this.#waits.wakeJobs(changedIds(message))),
      bus.subscribe(TASK_ENDS_TOPIC, (message) => this.#waits.tasksEnded(changedIds(message))),
    ];
  }

  stop(): Promise<void> {
    for (const subscription of this.#subscriptions) subscription.close();
    this.#subscriptions = [];
    return this.#waits.stop();
  }

  async carryOut(duty: HeldDuty, signal: AbortSignal): Promise<void> {
    for (;;) {
      signal.throwIfAborted();
      // Before the read, so that a change during it ends the next sleep.
      const wait = this.#waits.open(duty.id);
      try {
        const job = await readHeldWorkflowJob(this.#deps.database, duty.id);
        if (job === undefined || job.state.name === 'ended') return;
        const present = currentStepOf(duty, job, job.state);
        wait.awaited = conditionOf(present);
        wait.isCancelled = job.isCancelled;
        const next = await this.#advance(present);
        if (next === 'wait') await this.#waits.sleep(wait, signal);
        else if (next === 'retry-later')
          await this.#deps.clock.sleep(RETRY_MS, AbortSignal.any([wait.wake.signal, signal]));
      } finally {
        this.#waits.close(duty.id, wait);
      }
    }
  }

  /** Takes the job one step on, if that is possible now. */
  async #advance(present: CurrentStep): Promise<Next> {
    const { job, state } = present;
    if (state.name === 'due') {
      if (job.isCancelled && state.phase === 'chain') return this.#move(present, { event: { type: 'cancel' } });
      if (state.tries > 0 && job.stepMs < RETRY_MS) return 'retry-later';
      return this.#begin(present);
    }
    try {
      const outcome = await this.#outcomeOfStep(present);
      return outcome === undefined ? 'wait' : await this.#move(present, outcome);
    } catch (error) {
      if (error instanceof WorkflowJobMovedError) return 'reload';
      throw error;
    }
  }

  async #begin(present: CurrentStep): Promise<Next> {
    const { duty, job, state, step, stepName } = present;
    const { database, bus, random, tasks } = this.#deps;
    const facts = await this.#noteFor(present);
    const { work } = step;
    const isTask = work.kind === 'task' && isNeeded(work, job);
    const task = isTask ? taskOf(work, job, { id: random.uuid(), step }) : undefined;
    const at = positionOf(state);
    const noted = step.notesTask && task !== undefined ? { ...facts, create_task: task.id } : facts;
    const begun = await beginWorkflowStep(database, duty, { at, facts: noted, task }).catch((error: unknown) => {
      const refusal = orRefusal(error);
      if (!(refusal instanceof CnapiError) || refusal === error) throw error;
      // The step begins without its task, and fails.
      return beginWorkflowStep(database, duty, { at, facts: { refusal: refusal.message }, task: undefined });
    });
    if (begun === undefined) return 'reload';
    publishChanges(bus, WORKFLOW_ENDS_TOPIC, [job.id]);
    this.#log(present, { to: `${stepName} begun`, task: task?.id });
    if (task !== undefined) tasks.notifyAuthorities([{ serverUuid: job.serverUuid, run: begun.run }]);
    return 'reload';
  }

  /** Before the first try only: a later one would note what the first has changed. */
  async #noteFor({ job, state, step: { notes } }: CurrentStep): Promise<JsonObject> {
    if (notes === undefined || state.tries > 0) return {};
    return { [notes]: (await this.#deps.servers.get(job.serverUuid, CORE_PARTS))?.server[notes] ?? null };
  }

  /** What has become of the step that has begun; undefined: it goes on. */
  async #outcomeOfStep(present: CurrentStep): Promise<Outcome | undefined> {
    const { job, state, step } = present;
    const isCancelled = job.isCancelled && state.phase === 'chain';
    if (job.taskId !== undefined && step.work.kind === 'task') {
      const task = await readTask(this.#deps.database, job.taskId);
      if (task !== undefined && task.outcome === null) {
        if (isCancelled) await this.#cancelTask(job.taskId);
        return undefined;
      }
      return this.#outcomeOfTask(job, step.work, task);
    }
    if (isCancelled) return { event: { type: 'cancel' } };
    try {
      if (await this.#work(job, step.work)) return done(job);
    } catch (error) {
      if (isTemporary(error) || error instanceof WorkflowJobMovedError) throw error;
      const isFinal = error instanceof ServerNotFoundError;
      if (step.isInsistent && !isFinal) throw error;
      return failed(job, { code: 'StepFailed', message: messageOf(error) }, isFinal);
    }
    if (job.stepMs < step.timeoutMs) return undefined;
    const message = `${present.stepName} was not done within ${step.timeoutMs / 1000} s: ${await this.#why(job, step.work)}`;
    return { event: { type: 'timed-out' }, error: { code: 'StepTimeout', message } };
  }

  /** Harmless when it is repeated, also by a former holder: a job stays cancelled. */
  async #cancelTask(id: string): Promise<void> {
    await this.#deps.tasks.cancel(id).catch((error: unknown) => {
      const hasEnded = error instanceof TaskEndedError || error instanceof TaskNotFoundError;
      if (!hasEnded && !(error instanceof TaskNotCancellableError)) throw error;
    });
  }

  async #outcomeOfTask(
    job: HeldWorkflowJob,
    { accepts = [], keepsSysinfo = false }: TaskWork,
    task: TaskRow | undefined,
  ): Promise<Outcome> {
    if (task === undefined)
      return failed(job, { code: 'OutcomeUnknown', message: 'the record of its task was deleted' }, true);
    const result = decideStepResult(task, accepts);
    if (!result.isDone) return failed(job, result.error, result.isFinal);
    const reason = keepsSysinfo ? await this.#changes.keepSysinfo(job, task.result?.sysinfo) : undefined;
    if (reason !== undefined) return failed(job, { code: 'StepFailed', message: reason }, false);
    return done(job, result.accepted);
  }

  /** Does the work of a step without a task, or looks whether it is done. */
  async #work(job: HeldWorkflowJob, work: StepWork): Promise<boolean> {
    const { servers, tasks } = this.#deps;
    const { serverUuid } = job;
    switch (work.kind) {
      case 'task':
        if (!isNeeded(work, job)) return true;
        throw new Error(String(job.facts.refusal ?? 'the step has begun without its task'));
      case 'change':
        await this.#changes.change(job, work.change(job));
        return true;
      case 'mark-rebooting':
        await servers.markRebooting(serverUuid, job.facts.last_boot);
        return true;
      case 'await-idle':
        return (await tasks.unfinished(serverUuid)) === 0;
      case 'await-boot': {
        const server = await servers.get(serverUuid, CORE_PARTS);
        if (server === undefined) throw new ServerNotFoundError(serverUuid);
        return server.isRunning && (server.server.last_boot ?? null) !== job.facts.last_boot;
      }
      case 'take-ticket':
        return this.#provisioning.takeTicket(job);
      case 'release':
        await this.#provisioning.release(job);
        return true;
      default:
        return work satisfies never;
    }
  }

  /** Why a step that waits is not done. */
  async #why({ serverUuid }: HeldWorkflowJob, { kind }: StepWork): Promise<string> {
    if (kind === 'await-idle')
      return `${await this.#deps.tasks.unfinished(serverUuid)} tasks of the server have not ended`;
    if (kind === 'take-ticket') return 'somebody else has the ticket of its VM';
    const found = await this.#deps.servers.get(serverUuid, CORE_PARTS);
    return found?.isRunning ? 'the server runs, and its boot time is the same' : 'the server is not running';
  }

  async #move(present: CurrentStep, outcome: Outcome): Promise<Next> {
    const { event, error } = outcome;
    const { duty, job, plan, state, stepName: name } = present;
    const { database, bus, log } = this.#deps;
    const { state: to } = stepWorkflow(plan, state, event, job.id);
    const hasBegun = state.name === 'begun';
    const entry = hasBegun ? { name, ...resultOf(outcome) } : undefined;
    if (!(await moveWorkflowJob(database, duty, { from: positionOf(state), to, entry }))) return 'reload';
    publishChanges(bus, WORKFLOW_ENDS_TOPIC, [job.id]);
    this.#log(present, { to: to.name === 'ended' ? to.execution : `${stepOf(plan, to).name} due`, event: event.type });
    // Not its message, which may quote a program of the operator.
    if (error !== undefined)
      log.warn({ workflow_job: job.id, step: name, code: error.code, task: job.taskId }, 'workflow job: a step failed');
    return 'reload';
  }

  #log({ job, state, stepName }: CurrentStep, { to, ...more }: { to: string; [field: string]: unknown }): void {
    const fields = { workflow_job: job.id, workflow: job.name, server_uuid: job.serverUuid, ...more };
    this.#deps.log.info(fields, `workflow job: ${stepName} ${state.name} -> ${to}`);
  }
}

function currentStepOf(duty: HeldDuty, job: HeldWorkflowJob, state: Unfinished): CurrentStep {
  const plan = buildPlan(job.name, job);
  const { name: stepName } = stepOf(plan, state);
  return { duty, job, plan, state, stepName, step: workflowStep(job.name, stepName) };
}

/** What the present step waits for once it has begun. */
function conditionOf({ job, state, step }: CurrentStep): StepCondition | undefined {
  const { serverUuid, taskId } = job;
  if (state.name !== 'begun') return undefined;
  if (taskId !== undefined) return { kind: 'task', taskId };
  const { timeoutMs, work } = step;
  if (work.kind === 'take-ticket') return { kind: 'ticket', ticket: job.id, timeoutMs };
  if (work.kind === 'await-idle') return { kind: 'idle', serverUuid, timeoutMs };
  if (work.kind === 'await-boot') return { kind: 'boot', serverUuid, lastBoot: job.facts.last_boot, timeoutMs };
  return undefined;
}

/** Whether the step has a task at all. */
const isNeeded = ({ ifNoted }: TaskWork, { facts }: HeldWorkflowJob): boolean =>
  ifNoted === undefined || facts[ifNoted] !== undefined;

const positionOf = ({ phase, step, tries }: StepPosition): StepPosition => ({ phase, step, tries });

function taskOf(
  { task: name, params: paramsOf = () => ({}) }: TaskWork,
  job: HeldWorkflowJob,
  { id, step: { timeoutMs } }: { id: string; step: WorkflowStep },
): StepTask {
  const own = paramsOf(job);
  const { secret_params } = job.params;
  const params = Object.keys(own).length === 0 || secret_params === undefined ? own : { secret_params, ...own };
  const maskedParams = hasSecrets(params) ? maskParams(params) : undefined;
  return { id, name, params, maskedParams, timeoutMs, idempotent: taskKind(name).idempotent };
}

const done = ({ isCancelled }: HeldWorkflowJob, result = 'OK'): Outcome => ({
  event: { type: 'done', isCancelled },
  result,
});

const failed = (
  { isCancelled }: HeldWorkflowJob,
  error: { code: string; message: string },
  isFinal: boolean,
): Outcome => ({
  event: { type: 'failed', isCancelled, isFinal },
  error,
});

function resultOf({ event, error, result = '' }: Outcome): { result: string; error: string; error_code?: string } {
  if (error !== undefined)
    return { result, error: error.message.slice(0, MAX_MESSAGE_CHARS).toWellFormed(), error_code: error.code };
  return event.type === 'cancel' ? { result, error: 'canceled', error_code: 'Canceled' } : { result, error: '' };
}
