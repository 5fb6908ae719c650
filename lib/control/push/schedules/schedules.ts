/**
 * The schedules of push jobs, as callers create, read, pause and delete them at any instance, and
 * the scheduler behind them.
 */
import type { ExpiryPart, RecordPart } from '../../../platform/sql-text.ts';
import type { JsonObject } from '../../../protocol/bounded-json.ts';
import { InvalidPushJobError } from '../push-errors.ts';
import { complaintOfCron, cronTimes, isTimeZone, SEARCH_YEARS } from './cron-times.ts';
import type { Overlap } from './schedule.ts';
import { PushScheduleEndedError, PushScheduleNotFoundError, TooManySchedulesError } from './schedule-errors.ts';
import {
  createSchedule,
  deleteEndedSchedules,
  deleteOldJobs,
  deleteSchedule,
  listSchedules,
  pauseSchedule,
  readSchedule,
  readScheduleTime,
  resumeSchedule,
  type ScheduleFilter,
  type ScheduleRow,
} from './schedule-store.ts';
import { Scheduler, type SchedulerDeps } from './scheduler.ts';

interface ScheduleTimes {
  /** ISO 8601. */
  at: string | undefined;
  cron: string | undefined;
  timeZone: string | undefined;
}

export interface ScheduleRequest extends ScheduleTimes {
  id: string;
  overlap: Overlap | undefined;
  /** The body of POST /push-jobs, which has been checked. */
  job: JsonObject;
  actor: string | undefined;
  record?: RecordPart | undefined;
}

/** Of those that may still fire. */
const MAX_SCHEDULES = 1_000;
/** Of each schedule. */
const KEEP_JOBS = 100;
const DELETE_BATCH = 100;
/** Each is a row that goes with its job. */
const DELETE_NODES = 10_000;

export class PushSchedules {
  readonly scheduler: Scheduler;
  readonly #deps: SchedulerDeps;

  constructor(deps: SchedulerDeps) {
    this.#deps = deps;
    this.scheduler = new Scheduler(deps);
  }

  start(): void {
    this.scheduler.start();
  }

  stop(): Promise<void> {
    return this.scheduler.stop();
  }

  /**
   * A group that does not exist is refused, because its name is probably misspelt. Which servers
   * there are is not checked: they are those of the time at which the job starts.
   * @throws InvalidPushJobError, TooManySchedulesError
   */
  async create({ overlap = 'skip', ...request }: ScheduleRequest): Promise<void> {
    const { database, servers } = this.#deps;
    const times = timesOf(request, await this.#now());
    const { group } = request.job;
    if (typeof group === 'string' && (await servers.group(group)) === undefined)
      throw new InvalidPushJobError('job', `group: there is no server group ${JSON.stringify(group)}`);
    const schedule = { ...request, ...times, overlap };
    if (!(await createSchedule(database, schedule, MAX_SCHEDULES))) throw new TooManySchedulesError(MAX_SCHEDULES);
    this.scheduler.soon();
  }

  /** The next times of such a schedule, at most `count`. @throws InvalidPushJobError */
  async times(request: ScheduleTimes, count: number): Promise<Date[]> {
    const { nextAt, ...times } = timesOf(request, await this.#now());
    const found = [nextAt];
    while (found.length < count) {
      const next = nextTime(times, found.at(-1) ?? nextAt);
      if (next === undefined) break;
      found.push(next);
    }
    return found.map((at) => new Date(at));
  }

  /** @throws PushScheduleNotFoundError */
  async get(id: string): Promise<ScheduleRow> {
    const schedule = await readSchedule(this.#deps.database, id);
    if (schedule === undefined) throw new PushScheduleNotFoundError(id);
    return schedule;
  }

  /** The newest first. `next`: where the next page begins, if there may be one. */
  list(filter: ScheduleFilter): Promise<{ schedules: ScheduleRow[]; next: string | undefined }> {
    return listSchedules(this.#deps.database, filter);
  }

  /** @throws PushScheduleNotFoundError, PushScheduleEndedError */
  async pause(id: string): Promise<void> {
    if (!(await pauseSchedule(this.#deps.database, id))) this.#refuseEnded(await this.get(id));
  }

  /**
   * Times that passed meanwhile are left out.
   * @throws PushScheduleNotFoundError, PushScheduleEndedError
   */
  async resume(id: string): Promise<void> {
    const schedule = await this.get(id);
    this.#refuseEnded(schedule);
    const { at, cron, time_zone: timeZone } = schedule;
    const nextAt = nextTime({ at: at?.getTime(), cron: cron ?? undefined, timeZone }, await this.#now());
    await resumeSchedule(this.#deps.database, id, nextAt);
    this.scheduler.soon();
  }

  /** @throws PushScheduleNotFoundError */
  async delete(id: string): Promise<void> {
    if (!(await deleteSchedule(this.#deps.database, id))) throw new PushScheduleNotFoundError(id);
  }

  /** Deletes one batch of ended schedules; returns how many. Call it until it returns 0. */
  deleteOlderThan(days: number): Promise<number> {
    return deleteEndedSchedules(this.#deps.database, days, DELETE_BATCH);
  }

  /** Deletes one batch of old jobs of schedules; returns how many. Call it until it returns 0. */
  deleteOldJobs(records: ExpiryPart): Promise<number> {
    const bounds = { keep: KEEP_JOBS, most: DELETE_BATCH, nodes: DELETE_NODES };
    return deleteOldJobs(this.#deps.database, { ...bounds, records });
  }

  #now(): Promise<number> {
    return readScheduleTime(this.#deps.database, this.#deps.clock.wallTime());
  }

  #refuseEnded({ id, next_at, queued_at }: ScheduleRow): void {
    if (next_at === null && queued_at === null) throw new PushScheduleEndedError(id);
  }
}

/** @throws InvalidPushJobError when there is no such time after `now` */
function timesOf({ at: text, cron, timeZone = 'UTC' }: ScheduleTimes, now: number) {
  const at = text === undefined ? undefined : Date.parse(text);
  if ((at === undefined) === (cron === undefined))
    throw new InvalidPushJobError('at', 'give either at or cron, and not both');
  if (!isTimeZone(timeZone)) throw new InvalidPushJobError('time_zone', 'value is not the name of a time zone');
  const complaint = cron === undefined ? undefined : complaintOfCron(cron);
  if (complaint !== undefined) throw new InvalidPushJobError('cron', complaint);
  if (at !== undefined && at <= now) throw new InvalidPushJobError('at', 'value is not in the future');
  const nextAt = nextTime({ at, cron, timeZone }, now);
  if (nextAt === undefined)
    throw new InvalidPushJobError(
      'cron',
      `value names no time of the next ${SEARCH_YEARS} years: check its day of the month, month and day of the week`,
    );
  return { at, cron, timeZone, nextAt };
}

function nextTime(
  { at, cron, timeZone }: { at: number | undefined; cron: string | undefined; timeZone: string },
  now: number,
): number | undefined {
  if (cron !== undefined) return cronTimes(cron, timeZone).next(now);
  return at !== undefined && at > now ? at : undefined;
}
