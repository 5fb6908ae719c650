/**
 * Creates the jobs of schedules at their times. Each instance does this. The lock of the schedule's
 * row decides which one uses up a time, so an instance may die at any moment: another one finds the
 * time still due. Owned by `schedules.ts`.
 *
 *     a time has come, a schedule was changed here, or slow poll ──▶ look ──▶ decide
 *     decide ──▶ start, or pass
 */
import type { Clock } from '../../../platform/clock.ts';
import { CnapiError, isTemporary, messageOf } from '../../../platform/errors.ts';
import type { Logger } from '../../../platform/log.ts';
import { Loop } from '../../../platform/loop.ts';
import type { Queryable } from '../../../platform/postgres/database.ts';
import type { Random } from '../../../platform/random.ts';
import { pushJobContracts } from '../../../protocol/api/push-jobs.ts';
import { InvalidPushJobError, TooManyPushJobsError } from '../push-errors.ts';
import type { PushJobs } from '../push-jobs.ts';
import type { NewPushJob } from '../push-store.ts';
import { newPushJobOf } from '../request/job-request.ts';
import type { KnownServers } from '../request/job-targets.ts';
import { cronTimes } from './cron-times.ts';
import { decideFiring, type Firing } from './schedule.ts';
import {
  type DueSchedule,
  firingGuard,
  type PassedTime,
  passSchedule,
  readDueSchedules,
  readNextTime,
} from './schedule-store.ts';

export interface TimekeeperDeps {
  database: Queryable;
  clock: Clock;
  random: Random;
  log: Logger;
  config: { slowPollMs: number };
  servers: KnownServers;
  pushJobs: Pick<PushJobs, 'create' | 'nodes'>;
}

/** Read at once, and carried out one after the other. */
const BATCH = 20;
/** While a time waits for the end of a job. */
const RETRY_MS = 1_000;
/** A schedule that has failed rests for a second, then twice as long each time, up to this. */
const LONGEST_REST_MS = 60_000;
/** After a round that carried out something. One that changed nothing must not repeat at once. */
const PAUSE_MS = 10;

export class Timekeeper {
  readonly #deps: TimekeeperDeps;
  readonly #loop: Loop;
  #pauseMs = 0;
  /** Schedules that failed lately are not read, so that any number of them leaves time for others. */
  readonly #resting = new Map<string, { until: number; forMs: number; refusal: Refusal | undefined }>();
  readonly #counts = { started: 0, passed: 0, refused: 0 };

  constructor(deps: TimekeeperDeps) {
    this.#deps = deps;
    this.#loop = new Loop({
      ...deps,
      what: 'schedules of push jobs',
      work: (signal) => this.look(signal),
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
  soon(): void {
    this.#loop.soon();
  }

  /** Times that this instance used up. */
  stats(): { started: number; passed: number; refused: number } {
    return { ...this.#counts };
  }

  /** One round. */
  async look(signal?: AbortSignal): Promise<void> {
    const { clock, config, database } = this.#deps;
    const except = [...this.#resting].flatMap(([id, { until }]) => (until > clock.now() ? [id] : []));
    const due = await readDueSchedules(database, clock.wallTime(), { most: BATCH, except });
    for (const schedule of due) {
      if (signal?.aborted) return;
      const failure = await this.#tryToUse(schedule);
      if (failure === undefined) this.#resting.delete(schedule.id);
      else this.#rest(schedule, failure.error);
    }
    if (due.length > 0) this.#pauseMs = 0;
    else if (this.#isAnyResting()) this.#pauseMs = RETRY_MS;
    else {
      const { inMs, isQueued } = await readNextTime(database, clock.wallTime());
      this.#pauseMs = Math.min(inMs ?? config.slowPollMs, isQueued ? RETRY_MS : config.slowPollMs);
    }
  }

  #rest({ id }: DueSchedule, error: unknown): void {
    const forMs = Math.min(LONGEST_REST_MS, (this.#resting.get(id)?.forMs ?? RETRY_MS / 2) * 2);
    const refusal = error instanceof TooManyPushJobsError ? refusalOf(error) : undefined;
    this.#resting.set(id, { until: this.#deps.clock.now() + forMs, forMs, refusal });
  }

  /** Called when nothing else is due. Forgets rests that are over: nothing of them is due. */
  #isAnyResting(): boolean {
    for (const [id, { until }] of this.#resting) if (until <= this.#deps.clock.now()) this.#resting.delete(id);
    return this.#resting.size > 0;
  }

  /** Returns why it failed, if it did: that does not hold up other schedules (law 9). */
  async #tryToUse(schedule: DueSchedule): Promise<{ error: unknown } | undefined> {
    try {
      await this.#use(schedule);
      return undefined;
    } catch (error) {
      const about = { push_schedule: schedule.id, reason: messageOf(error) };
      if (isTemporary(error) || error instanceof TooManyPushJobsError)
        this.#deps.log.warn(about, 'push schedule: could not create a due job; trying again');
      else this.#deps.log.error({ ...about, err: error }, 'push schedule: could not create a due job');
      return { error };
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
        const refusal = firing.outcome === 'missed' ? this.#resting.get(schedule.id)?.refusal : undefined;
        return this.#pass(schedule, { ...firing, ...refusal, queueAt: schedule.queued_at?.getTime() });
      }
      default:
        return firing satisfies never;
    }
  }

  async #start(schedule: DueSchedule, { at, thenAt }: Extract<Firing, { do: 'start' }>): Promise<void> {
    const { log, pushJobs, random } = this.#deps;
    const job = random.uuid();
    try {
      const guard = firingGuard(schedule, { at, thenAt, job });
      if (!(await pushJobs.create({ ...(await this.#jobOf(schedule, job)), guard }))) return;
    } catch (error) {
      if (!isRefusal(error, thenAt)) throw error;
      return this.#pass(schedule, { ...refusalOf(error), at, thenAt, queueAt: undefined, outcome: 'refused' });
    }
    this.#counts.started += 1;
    log.info({ push_schedule: schedule.id, at: new Date(at), push_job: job }, 'push schedule: job started');
  }

  async #pass(schedule: DueSchedule, time: PassedTime): Promise<void> {
    const { database, log } = this.#deps;
    if (!(await passSchedule(database, schedule, time)) || time.outcome === undefined) return;
    this.#counts.passed += 1;
    if (time.outcome === 'refused') this.#counts.refused += 1;
    const { outcome, reason, message } = time;
    log.warn(
      { push_schedule: schedule.id, at: new Date(time.at), outcome, reason, message },
      'push schedule: no job started',
    );
  }

  /** The job as its body says, for the servers that there are now. @throws errors of the request */
  async #jobOf({ job, actor }: DueSchedule, id: string): Promise<NewPushJob> {
    const { pushJobs, servers } = this.#deps;
    const request = pushJobContracts.CreatePushJob.params.safeParse(job);
    if (request.success) return newPushJobOf(request.data, { id, actor: actor ?? undefined, servers, jobs: pushJobs });
    // Written by another version.
    const [issue] = request.error.issues;
    throw new InvalidPushJobError(String(issue?.path[0] ?? 'job'), issue?.message ?? 'value is not valid');
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
