/**
 * Carries out the duties of kind `push-job`: one job each, from what its rows say. `push-job.ts`
 * decides; each step is one fenced statement, so another instance can continue after any of them
 * (docs/design/push-jobs.md). Owned by `push-jobs.ts`.
 *
 *     a vote was stored, a task ended, a caller asked, or some time passed ──▶ advance ──▶ decide
 *        ▲                                                                                 │
 *        └───────────── wait ◀──── start or abort nodes, close the voting, abort ◀─────────┤
 *                                                                         end ◀────────────┘
 */
import type { Bus, Subscription } from '../../../platform/bus/bus.ts';
import { isTemporary } from '../../../platform/errors.ts';
import type { Logger } from '../../../platform/log.ts';
import type { Queryable } from '../../../platform/postgres/database.ts';
import type { Random } from '../../../platform/random.ts';
import type { Clock } from '../../../platform/time/clock.ts';
import { changedIds, publishChanges } from '../../../platform/waits/changes.ts';
import { MAX_TASK_TIMEOUT_MS } from '../../../protocol/limits.ts';
import type { DutyHandler, HeldDuty } from '../../duty/duty.ts';
import { tickLagMs } from '../../tasks/deadlines/deadline-counter.ts';
import { TASK_ENDS_TOPIC } from '../../tasks/task-topics.ts';
import type { Tasks } from '../../tasks/tasks.ts';
import {
  type CoordinatorAction,
  decideActions,
  type PushJobSnapshot,
  type PushJobState,
  StartRateLimiter,
} from '../push-job.ts';
import { PUSH_CHANGES_TOPIC, PUSH_PROGRESS_TOPIC } from '../push-topics.ts';
import { PushJobTicket, type PushJobTicketDeps } from '../tickets/job-ticket.ts';
import { beginVoting, readPushTicket } from '../tickets/ticket-store.ts';
import {
  abortJob,
  abortNodes,
  advanceJob,
  changeTimeouts,
  closeVoting,
  endJob,
  NODES_A_STEP,
  type PushJobRound,
  readTasksOfJob,
  startNodes,
} from './coordinator-store.ts';

interface CoordinatorDeps extends PushJobTicketDeps {
  database: Queryable;
  bus: Bus;
  clock: Clock;
  random: Random;
  log: Logger;
  config: { slowPollMs: number };
  tasks: Pick<Tasks, 'notifyAuthorities'>;
  /** The job's rows changed: agents may have to be asked, or told to forget it. */
  sendOrders(jobId: string): void;
}

/** Votes and ends gather for this long: a round costs the same for one as for thousands. */
const GATHER_MS = 50;
/** Added for each job of this instance, so that the total load of rounds stays bounded. */
const GATHER_MS_OF_JOB = 3;
/**
 * The time between rounds without news: a round finds agents that are gone, and changes whose
 * message was lost.
 */
const ROUND_MS = 1_000;
/** The pause after each step. */
const PAUSE_MS = 10;
/** The pause after a step that changed nothing because rows are locked. */
const BLOCKED_PAUSE_MS = 250;
/**
 * The time between rounds while nodes start, because no message announces the start of a command.
 */
const STARTING_ROUND_MS = 250;
/** A round reads every node, so a large job without changes is polled less often. */
const ROUND_MS_OF_NODE = 0.2;
/** Tasks that are awaited here although they have ended, because the message was lost. */
const LOST_ENDS = 1_000;

/** A job that is carried out here. */
interface ActiveJob {
  /** Aborts when something of the job has changed since the present round began. */
  changed: AbortController;
  /** The tasks whose ends are awaited. */
  tasks: Set<string>;
  startRateLimiter: StartRateLimiter;
  /** The job's state in the last round. */
  state: PushJobState | undefined;
  /** The steps of the last round, with what was left to do before them. */
  steps: ReadonlySet<string>;
  /** The counts of the job's nodes in the last round. */
  counts: string | undefined;
  /** The abort that the last step asked for. */
  aborting: Aborting | undefined;
}

type Aborting = Omit<Extract<CoordinatorAction, { do: 'abort' }>, 'do' | 'cause'>;

interface Round {
  view: PushJobSnapshot;
  active: ActiveJob;
  /** The least time until the next round. */
  pauseMs: number;
}

interface Wait {
  pauseMs: number;
  /** The time until the next round if there is no news. */
  roundMs: number;
  /** The time until the next timeout. */
  forMs: number | undefined;
}

export class Coordinator implements DutyHandler {
  readonly #deps: CoordinatorDeps;
  readonly #activeJobs = new Map<string, ActiveJob>();
  readonly #jobOfTask = new Map<string, string>();
  #subscriptions: Subscription[] = [];

  constructor(deps: CoordinatorDeps) {
    this.#deps = deps;
  }

  start(): void {
    const { bus } = this.#deps;
    this.#subscriptions = [
      bus.subscribe(PUSH_CHANGES_TOPIC, (message) => this.changed(changedIds(message))),
      bus.subscribe(TASK_ENDS_TOPIC, (message) => this.#tasksEnded(changedIds(message))),
    ];
  }

  stop(): void {
    for (const subscription of this.#subscriptions) subscription.close();
  }

  /** Something of these jobs has changed in the database. */
  changed(jobs: readonly string[]): void {
    for (const jobId of jobs) this.#activeJobs.get(jobId)?.changed.abort();
  }

  async carryOut(duty: HeldDuty, signal: AbortSignal): Promise<void> {
    const active: ActiveJob = {
      changed: new AbortController(),
      tasks: new Set(),
      startRateLimiter: new StartRateLimiter(),
      state: undefined,
      steps: new Set(),
      counts: undefined,
      aborting: undefined,
    };
    this.#activeJobs.set(duty.id, active);
    // After a failure the work begins again: what this attempt waits for ends with it.
    const attemptEnded = new AbortController();
    try {
      this.#follow(duty.id, await readTasksOfJob(this.#deps.database, duty.id));
      return await this.#rounds(duty, active, AbortSignal.any([signal, attemptEnded.signal]));
    } finally {
      attemptEnded.abort();
      this.#activeJobs.delete(duty.id);
      for (const taskId of active.tasks) this.#jobOfTask.delete(taskId);
    }
  }

  async #rounds(duty: HeldDuty, active: ActiveJob, signal: AbortSignal): Promise<void> {
    const times = new PushJobTimes(this.#deps.clock, tickLagMs(this.#deps.config));
    const row = await readPushTicket(this.#deps.database, duty.id);
    const ticket = row && new PushJobTicket(this.#deps, duty, row);
    const { clock } = this.#deps;
    const checkTicket = async () => (await ticket?.ensureHeld(() => this.changed([duty.id]), signal)) ?? 'none';
    for (;;) {
      signal.throwIfAborted();
      active.changed = new AbortController();
      const beganAt = clock.now();
      const advanced = await advanceJob(this.#deps.database, duty).catch(async (error: unknown) => {
        // The ticket is renewed even while the rows of the job are locked.
        if (isTemporary(error)) await checkTicket();
        throw error;
      });
      if (active.tasks.size > advanced.started + LOST_ENDS)
        this.#followOnly(duty.id, active, await readTasksOfJob(this.#deps.database, duty.id));
      const counted = times.corrected(advanced);
      // A round locks the job's row, for which votes do not wait: they need as much time as it
      // took.
      const pauseMs = counted.nodeCounts.new > 0 ? Math.max(PAUSE_MS, clock.now() - beganAt) : PAUSE_MS;
      this.#notifyFollowers(duty.id, active, counted);
      if (counted.inRehab > 0) this.#deps.sendOrders(duty.id);
      this.#logProgress(duty, active, counted);
      if (counted.job.state === 'ended') {
        return ticket?.release();
      }
      const view: PushJobSnapshot = {
        ...counted,
        startBucketFullInMs: active.startRateLimiter.fullInMs(counted, clock.now()),
        ticket: await checkTicket(),
        ticketTimeoutMs: ticket?.timeoutMs ?? 0,
      };
      if (counted.isMore) await clock.sleep(pauseMs, signal);
      else await this.#steps(duty, { view, active, pauseMs }, signal);
    }
  }

  /**
   * Takes the first step that applies. If it repeats a step of the last round, takes the next one
   * as well.
   */
  async #steps(duty: HeldDuty, round: Round, signal: AbortSignal): Promise<void> {
    const { view, active, pauseMs } = round;
    const before = active.steps;
    const steps = new Set<string>();
    active.steps = steps;
    for (const action of decideActions(view)) {
      if (action.do === 'wait') {
        if (steps.size === 0) return this.#wait(active, { pauseMs, roundMs: roundMsOf(view), ...action }, signal);
        break;
      }
      await this.#carryOut(duty, action, round);
      const step = JSON.stringify([action, leftOf(action, view)]);
      steps.add(step);
      if (!before.has(step)) return this.#deps.clock.sleep(pauseMs, signal);
    }
    await this.#deps.clock.sleep(BLOCKED_PAUSE_MS, signal);
  }

  /**
   * A start, an abort, or the beginning of the voting may have been refused: the next round finds
   * out.
   */
  #logProgress({ id }: HeldDuty, active: ActiveJob, { job: { state, isSoft }, nodeCounts }: PushJobRound): void {
    const isProgress =
      active.state !== undefined && active.state !== state && (state === 'voting' || state === 'running');
    if (isProgress)
      this.#deps.log.info({ push_job: id, node_counts: nodeCounts }, `push job: ${active.state} -> ${state}`);
    if (active.aborting?.soft === isSoft && state === 'aborting')
      this.#deps.log.info({ push_job: id, ...active.aborting, node_counts: nodeCounts }, 'push job: aborting');
    active.aborting = undefined;
    active.state = state;
  }

  async #carryOut(
    duty: HeldDuty,
    action: Exclude<CoordinatorAction, { do: 'wait' }>,
    { view, active }: Round,
  ): Promise<void> {
    const { clock, database, random, log, sendOrders, tasks } = this.#deps;
    switch (action.do) {
      case 'start': {
        const ids = Array.from({ length: action.limit }, () => random.uuid());
        const refillMs = Math.max(0, view.startBucketFullInMs);
        const started = await startNodes(database, duty, { ids, runMs: runMsOf(view), refillMs });
        active.startRateLimiter.charge(view.job, started.length, clock.now());
        this.#follow(
          duty.id,
          started.map(({ taskId }) => taskId),
        );
        return tasks.notifyAuthorities(started);
      }
      case 'begin-voting':
        await beginVoting(database, duty);
        return sendOrders(duty.id);
      case 'change-timeouts':
        await changeTimeouts(database, duty, NODES_A_STEP);
        return sendOrders(duty.id);
      case 'close-voting':
        return closeVoting(database, duty, view.ageMs);
      case 'abort-nodes':
        tasks.notifyAuthorities(await abortNodes(database, duty, NODES_A_STEP));
        return sendOrders(duty.id);
      case 'abort': {
        const { cause, ending, soft, reason } = action;
        const { ageMs, stateMs } = view;
        if (view.job.state !== 'aborting' || view.job.isSoft !== soft) active.aborting = { ending, soft, reason };
        const because = cause && { cause, ageMs, stateMs };
        const options = { because, ending, soft, reason, limit: NODES_A_STEP };
        tasks.notifyAuthorities(await abortJob(database, duty, options));
        return sendOrders(duty.id);
      }
      case 'end':
        if ((await endJob(database, duty, action.outcome)) > 0) return;
        publishChanges(this.#deps.bus, PUSH_PROGRESS_TOPIC, [duty.id]);
        log.info({ push_job: duty.id, outcome: action.outcome, node_counts: view.nodeCounts }, 'push job: ended');
        return sendOrders(duty.id);
      default:
        return action satisfies never;
    }
  }

  /** Waits until something of the job changes, and then a little longer, but at most `forMs`. */
  async #wait(active: ActiveJob, { pauseMs, roundMs, forMs = Infinity }: Wait, signal: AbortSignal): Promise<void> {
    const { clock } = this.#deps;
    const gatherMs = Math.min(Math.max(pauseMs, GATHER_MS + this.#activeJobs.size * GATHER_MS_OF_JOB), forMs);
    await clock.sleep(gatherMs, signal);
    const restMs = Math.max(0, Math.min(roundMs, forMs) - gatherMs);
    await clock.sleep(restMs, AbortSignal.any([active.changed.signal, signal]));
  }

  /**
   * Notifies the followers if the round found a change. Nodes only move forward, so each change
   * shows in the counts.
   */
  #notifyFollowers(
    jobId: string,
    active: ActiveJob,
    { job: { state }, nodeCounts, started, newEvents }: PushJobRound,
  ): void {
    const counts = JSON.stringify([state, nodeCounts, started]);
    if (counts === active.counts && newEvents === 0) return;
    active.counts = counts;
    publishChanges(this.#deps.bus, PUSH_PROGRESS_TOPIC, [jobId]);
  }

  /** Makes the end of any of these tasks wake the job. */
  #follow(jobId: string, tasks: readonly string[]): void {
    const active = this.#activeJobs.get(jobId);
    for (const taskId of tasks) {
      active?.tasks.add(taskId);
      this.#jobOfTask.set(taskId, jobId);
    }
  }

  #followOnly(jobId: string, active: ActiveJob, tasks: readonly string[]): void {
    for (const taskId of active.tasks) this.#jobOfTask.delete(taskId);
    active.tasks.clear();
    this.#follow(jobId, tasks);
  }

  #tasksEnded(tasks: readonly string[]): void {
    for (const taskId of tasks) {
      const jobId = this.#jobOfTask.get(taskId);
      if (jobId === undefined) continue;
      this.#jobOfTask.delete(taskId);
      const active = this.#activeJobs.get(jobId);
      active?.tasks.delete(taskId);
      active?.changed.abort();
    }
  }
}

/** The work that a step reduces. If it is the same in the next round, rows are locked. */
function leftOf({ do: what }: CoordinatorAction, view: PushJobSnapshot): unknown {
  const { job, nodeCounts, started, toCancel, toAbort, toRelease, outdatedTimeouts } = view;
  if (what === 'close-voting') return nodeCounts.new;
  if (what === 'abort-nodes') return toAbort;
  if (what === 'change-timeouts') return outdatedTimeouts;
  if (what === 'start') return [job.state, nodeCounts.ready + nodeCounts.running - started];
  return [job.state, nodeCounts, started, toCancel, toRelease];
}

/** The poll interval when no change is announced. */
function roundMsOf({ started, nodeCounts }: PushJobSnapshot): number {
  const nodes = Object.values(nodeCounts).reduce((sum, count) => sum + count, 0);
  return (started > nodeCounts.running ? STARTING_ROUND_MS : ROUND_MS) + nodes * ROUND_MS_OF_NODE;
}

/** How long the job has run. A command may use the rest of the job's run timeout. */
function runMsOf({ job, stateMs }: PushJobSnapshot): number {
  return job.state === 'voting' ? 0 : Math.min(MAX_TASK_TIMEOUT_MS, Math.round(stateMs));
}

/**
 * The time since the job asked its agents, and the time in its state. The rows count both in ticks
 * of a second, which pause while no instance is healthy. This holder reads them once and continues
 * with its own clock. The tick counter may have lagged when the job was created. The lag is
 * subtracted, so no timeout ends early; each new holder may delay it by the lag.
 */
class PushJobTimes {
  readonly #clock: Clock;
  readonly #lagMs: number;
  #createdAt: number | undefined;
  #state: string | undefined;
  #stateAt = 0;

  constructor(clock: Clock, lagMs: number) {
    this.#clock = clock;
    this.#lagMs = lagMs;
  }

  corrected(view: PushJobRound): PushJobRound {
    const now = this.#clock.now();
    const isFirst = this.#createdAt === undefined;
    this.#createdAt ??= now - this.#without(view.ageMs);
    if (this.#state?.startsWith('waiting') && view.job.state !== 'waiting') this.#createdAt = now;
    // A hard abort after a soft one begins its own time.
    const state = `${view.job.state}${view.job.isSoft ? ', soft' : ''}`;
    if (this.#state !== state) this.#stateAt = isFirst ? now - this.#without(view.stateMs) : now;
    this.#state = state;
    return { ...view, ageMs: now - this.#createdAt, stateMs: now - this.#stateAt };
  }

  #without(countedMs: number): number {
    return Math.max(0, countedMs - this.#lagMs);
  }
}
