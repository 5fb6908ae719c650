/**
 * Creates the jobs of schedules at their times. Each instance does this for the schedules that it
 * claims. The lock of the schedule's row decides whether a time is used up, so an instance may die
 * at any moment: another one finds the time still due. Owned by `schedules.ts`.
 *
 *     a time has come, a schedule was changed here, or slow poll ──▶ claim those due ──▶ decide
 *     decide ──▶ start, or pass; a failed one is due again when its claim is over
 */
import { CnapiError, isTemporary, messageOf } from '../../../platform/errors.ts';
import { Semaphore } from '../../../platform/limiting/semaphore.ts';
import type { Logger } from '../../../platform/log.ts';
import type { Queryable } from '../../../platform/postgres/database.ts';
import type { Random } from '../../../platform/random.ts';
import type { Clock } from '../../../platform/time/clock.ts';
import { Loop } from '../../../platform/time/loop.ts';
import { TooManyPushJobsError } from '../push-errors.ts';
import type { PushJobs } from '../push-jobs.ts';
import type { KnownServers } from '../request/job-targets.ts';
import { cronTimes } from './cron-times.ts';
import { decideFiring, type Firing } from './schedule.ts';
import { resolveScheduledJob } from './schedule-job.ts';
import {
  claimDueSchedules,
  type DueSchedule,
  firingGuard,
  readClaimedSchedules,
  readNextTime,
  recordFailedTry,
  type UsedTime,
  useUpTime,
} from './schedule-store.ts';

export interface SchedulerDeps {
  database: Queryable;
  clock: Clock;
  random: Random;
  log: Logger;
  config: { slowPollMs: number };
  servers: KnownServers;
  pushJobs: Pick<PushJobs, 'create' | 'findByIdempotencyKey' | 'nodes' | 'serverGroup'>;
}

/** How many schedules a round claims. The others are left to other instances and the next round. */
const BATCH = 6;
/** How many of them are carried out concurrently, so that a slow one delays few others. */
const AT_ONCE = 3;
/** The pause while a time waits for the end of a job, or while a due schedule is locked. */
const RETRY_MS = 1_000;
/** The pause after a round that carried out something. */
const PAUSE_MS = 10;

export class Scheduler {
  readonly #deps: SchedulerDeps;
  readonly #loop: Loop;
  #pauseMs = 0;
  readonly #counts = { started: 0, passed: 0, refused: 0 };

  constructor(deps: SchedulerDeps) {
    this.#deps = deps;
    this.#loop = new Loop({
      ...deps,
      what: 'schedules of push jobs',
      work: (signal) => this.runDue(signal),
      pauseMs: () => this.#pauseMs,
      minPauseMs: PAUSE_MS,
      retryMs: RETRY_MS,
    });
  }

  start(): void {
    this.#loop.start();
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  /** A schedule was created or changed here. */
  trigger(): void {
    this.#loop.trigger();
  }

  /** Times that this instance used up. */
  stats(): { started: number; passed: number; refused: number } {
    return { ...this.#counts };
  }

  /** Claims due schedules and uses up their times, once. */
  async runDue(signal?: AbortSignal): Promise<void> {
    const { clock, config, database } = this.#deps;
    const claimed = await claimDueSchedules(database, clock.wallTime(), BATCH);
    const due = claimed.length === 0 ? [] : await readClaimedSchedules(database, clock.wallTime(), claimed);
    const lanes = new Semaphore(AT_ONCE);
    await Promise.all(
      due.map((schedule) => lanes.run(async () => (signal?.aborted ? undefined : this.#tryToUse(schedule)))),
    );
    if (claimed.length > 0) this.#pauseMs = 0;
    else {
      const { inMs, isQueued } = await readNextTime(database, clock.wallTime());
      const nextMs = inMs !== null && inMs <= 0 ? RETRY_MS : (inMs ?? config.slowPollMs);
      this.#pauseMs = Math.min(nextMs, isQueued ? RETRY_MS : config.slowPollMs);
    }
  }

  /** A failure does not hold up other schedules (law 9). */
  async #tryToUse(schedule: DueSchedule): Promise<void> {
    const { database, log } = this.#deps;
    try {
      await this.#use(schedule).catch(async (error: unknown) => {
        if (error instanceof TooManyPushJobsError) await recordFailedTry(database, schedule, refusalOf(error));
        throw error;
      });
    } catch (error) {
      const about = { push_schedule: schedule.id, reason: messageOf(error) };
      if (isTemporary(error) || error instanceof TooManyPushJobsError)
        log.warn(about, 'push schedule: could not create a due job; trying again');
      else log.error({ ...about, err: error }, 'push schedule: could not create a due job');
    }
  }

  async #use(schedule: DueSchedule): Promise<void> {
    const firing = firingOf(schedule);
    switch (firing.do) {
      case 'wait':
        return;
      case 'start':
        return this.#start(schedule, firing);
      case 'queue':
        return this.#pass(schedule, { ...firing, queueAt: firing.at, outcome: undefined, reason: undefined });
      case 'pass': {
        const { failure_reason: reason, failure_message: message } = schedule;
        const refusal = firing.outcome === 'missed' && reason !== null && message !== null ? { reason, message } : {};
        return this.#pass(schedule, { ...firing, ...refusal, queueAt: schedule.queued_at?.getTime() });
      }
      default:
        return firing satisfies never;
    }
  }

  async #start(schedule: DueSchedule, { at, thenAt }: Extract<Firing, { do: 'start' }>): Promise<void> {
    const { log, pushJobs, random, servers } = this.#deps;
    const jobId = random.uuid();
    try {
      const guard = firingGuard(schedule, { at, thenAt, jobId });
      const wanted = await resolveScheduledJob(schedule.job, {
        id: jobId,
        actor: schedule.job_actor ?? undefined,
        servers,
        pushJobs,
      });
      if (!(await pushJobs.create({ ...wanted, guard }))) return;
    } catch (error) {
      if (!isRefusal(error, thenAt)) throw error;
      return this.#pass(schedule, { ...refusalOf(error), at, thenAt, queueAt: undefined, outcome: 'refused' });
    }
    this.#counts.started += 1;
    log.info({ push_schedule: schedule.id, at: new Date(at), push_job: jobId }, 'push schedule: job started');
  }

  async #pass(schedule: DueSchedule, time: UsedTime): Promise<void> {
    const { database, log } = this.#deps;
    if (!(await useUpTime(database, schedule, time)) || time.outcome === undefined) return;
    this.#counts.passed += 1;
    if (time.outcome === 'refused') this.#counts.refused += 1;
    const { outcome, reason, message } = time;
    log.warn(
      { push_schedule: schedule.id, at: new Date(time.at), outcome, reason, message },
      'push schedule: no job started',
    );
  }
}

/**
 * The job cannot be created at this time. One that only has to wait for the end of others is tried
 * at the next time; without one it is tried again until it is missed.
 */
const isRefusal = (error: unknown, thenAt: number | undefined): error is CnapiError =>
  error instanceof TooManyPushJobsError ? thenAt !== undefined : error instanceof CnapiError && error.statusCode < 500;

interface Refusal {
  reason: string;
  message: string;
}

const MAX_FIELDS = 5;
const MAX_MESSAGE_CHARS = 500;

/** The reason names fields only: their values, and so the message, may be confidential. */
function refusalOf({ code, errors = [], message }: CnapiError): Refusal {
  const fields = [...new Set(errors.map(({ field }) => field))].slice(0, MAX_FIELDS);
  const words = errors.length === 0 ? message : errors.map((one) => `${one.field}: ${one.message}`).join('; ');
  return {
    reason: fields.length === 0 ? code : `${code}: ${fields.join(', ')}`,
    message: words.slice(0, MAX_MESSAGE_CHARS).toWellFormed(),
  };
}

function firingOf({ cron, time_zone, overlap, next_at, queued_at, is_busy: isBusy, now }: DueSchedule): Firing {
  const times = cron === null ? undefined : cronTimes(cron, time_zone);
  const state = { overlap, nextAt: next_at?.getTime(), queuedAt: queued_at?.getTime(), isBusy };
  return decideFiring(state, times, now.getTime());
}
