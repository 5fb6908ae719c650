/**
 * Creates the jobs of schedules at their times. Each instance does this. The lock of the schedule's
 * row decides which one uses up a time, so an instance may die at any moment: another one finds the
 * time still due. Owned by `schedules.ts`.
 *
 *     a time has come, a schedule was changed here, or slow poll ──▶ look ──▶ decide ──▶ start, or pass
 */
import type { Clock } from '../../../platform/clock.ts';
import { CnapiError, isTemporary, messageOf } from '../../../platform/errors.ts';
import type { Logger } from '../../../platform/log.ts';
import { Loop } from '../../../platform/loop.ts';
import type { Queryable } from '../../../platform/postgres/database.ts';
import type { Random } from '../../../platform/random.ts';
import { pushJobContracts } from '../../../protocol/api/push-jobs.ts';
import { newPushJobOf } from '../job-request.ts';
import type { KnownJobs, KnownServers } from '../job-targets.ts';
import { listPushNodes, type NewPushJob } from '../push-store.ts';
import { cronTimes } from './cron-times.ts';
import { decideFiring, type Firing } from './schedule.ts';
import {
  type DueSchedule,
  fireSchedule,
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
  /** A job was created here. */
  jobCreated: (id: string) => void;
}

/** Read at once, and carried out one after the other. */
const BATCH = 20;
/** While a time waits for the end of a job, or one could not be used up. */
const RETRY_MS = 1_000;
/** After a round that carried out something: one that changes nothing must not be repeated at once. */
const PAUSE_MS = 10;

export class Timekeeper {
  readonly #deps: TimekeeperDeps;
  readonly #loop: Loop;
  #pauseMs = 0;
  readonly #counts = { started: 0, passed: 0 };

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
  stats(): { started: number; passed: number } {
    return { ...this.#counts };
  }

  /** One round. */
  async look(signal?: AbortSignal): Promise<void> {
    const { clock, config, database } = this.#deps;
    const due = await readDueSchedules(database, clock.wallTime(), BATCH);
    let hasFailed = false;
    for (const schedule of due) {
      if (signal?.aborted) return;
      hasFailed = !(await this.#tryToUse(schedule)) || hasFailed;
    }
    if (hasFailed) this.#pauseMs = RETRY_MS;
    else if (due.length > 0) this.#pauseMs = 0;
    else {
      const { inMs, isQueued } = await readNextTime(database, clock.wallTime());
      this.#pauseMs = Math.min(inMs ?? config.slowPollMs, isQueued ? RETRY_MS : config.slowPollMs);
    }
  }

  /** One schedule that fails does not hold up the others (law 9). */
  async #tryToUse(schedule: DueSchedule): Promise<boolean> {
    try {
      await this.#use(schedule);
      return true;
    } catch (error) {
      const about = { push_schedule: schedule.id, reason: messageOf(error) };
      if (isTemporary(error)) this.#deps.log.warn(about, 'push schedule: its time has come; it is tried again');
      else this.#deps.log.error({ ...about, err: error }, 'push schedule: its time has come, and it failed');
      return false;
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
      case 'pass':
        return this.#pass(schedule, { ...firing, queueAt: schedule.queued_at?.getTime() });
      default:
        return firing satisfies never;
    }
  }

  async #start(schedule: DueSchedule, { at, thenAt }: Extract<Firing, { do: 'start' }>): Promise<void> {
    const { database, log, jobCreated } = this.#deps;
    const job = await this.#jobOf(schedule);
    if (typeof job === 'string')
      return this.#pass(schedule, { at, thenAt, queueAt: undefined, outcome: 'refused', reason: job });
    if (!(await fireSchedule(database, schedule, { at, thenAt, job }))) return;
    this.#counts.started += 1;
    log.info({ push_schedule: schedule.id, at: new Date(at), push_job: job.id }, 'push schedule: job started');
    jobCreated(job.id);
  }

  async #pass(schedule: DueSchedule, time: PassedTime): Promise<void> {
    const { database, log } = this.#deps;
    if (!(await passSchedule(database, schedule, time)) || time.outcome === undefined) return;
    this.#counts.passed += 1;
    const { outcome, reason } = time;
    log.warn({ push_schedule: schedule.id, at: new Date(time.at), outcome, reason }, 'push schedule: no job started');
  }

  /** The job as its body says, for the servers that there are now; or why there can be none. */
  async #jobOf({ job, actor }: DueSchedule): Promise<NewPushJob | string> {
    const { database, random, servers } = this.#deps;
    const jobs = { nodes: (...[id, page]: Parameters<KnownJobs['nodes']>) => listPushNodes(database, id, page) };
    const request = pushJobContracts.CreatePushJob.params.safeParse(job);
    if (!request.success) return `this version does not take its job: ${request.error.issues[0]?.message}`;
    try {
      return await newPushJobOf(request.data, { id: random.uuid(), actor: actor ?? undefined, servers, jobs });
    } catch (error) {
      if (error instanceof CnapiError && error.statusCode < 500) return whatIsWrong(error);
      throw error;
    }
  }
}

const whatIsWrong = ({ errors, message }: CnapiError): string =>
  errors?.map((one) => `${one.field}: ${one.message}`).join('; ') ?? message;

function firingOf({ cron, time_zone, overlap, next_at, queued_at, is_busy: isBusy, now }: DueSchedule): Firing {
  const times = cron === null ? undefined : cronTimes(cron, time_zone);
  const state = { overlap, nextAt: next_at?.getTime(), queuedAt: queued_at?.getTime(), isBusy };
  return decideFiring(state, times, now.getTime());
}
