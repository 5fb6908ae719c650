/**
 * The schedules of push jobs, as callers create, read, pause and delete them at any instance, and
 * the scheduler behind them.
 */
import { isDeepStrictEqual } from 'node:util';
import { checkAll, invalidParameter } from '../../../platform/errors.ts';
import type { JsonObject } from '../../../protocol/json/bounded-json.ts';
import type { AuditRecordPart, ExpiryPart } from '../../audit-part.ts';
import type { RequestKey } from '../push-store.ts';
import type { Overlap } from './schedule.ts';
import {
  changeSchedule,
  deleteSchedule,
  pauseSchedule,
  readWholeSchedule,
  resumeSchedule,
  runGuard,
  type WholeSchedule,
} from './schedule-change-store.ts';
import {
  PushScheduleBusyError,
  PushScheduleConflictError,
  PushScheduleEndedError,
  PushScheduleNotFoundError,
  TooManyPushSchedulesError,
} from './schedule-errors.ts';
import { changedJob, resolveScheduledJob } from './schedule-job.ts';
import {
  deleteEndedSchedules,
  deleteOldJobs,
  insertSchedule,
  listSchedules,
  readSchedule,
  readScheduleTime,
  type ScheduleFilter,
  type ScheduleRow,
} from './schedule-store.ts';
import {
  changedTimes,
  nextTime,
  nextTimes,
  parseScheduleTimes,
  type ScheduleTimes,
  timesIn,
} from './schedule-times.ts';
import { Scheduler, type SchedulerDeps } from './scheduler.ts';

export interface ScheduleRequest extends ScheduleTimes {
  id: string;
  overlap: Overlap | undefined;
  /** The body of POST /push-jobs, which has been checked. */
  job: JsonObject;
  actor: string | undefined;
  record?: AuditRecordPart | undefined;
}

/** What a request changes; what is absent stays. */
export interface ScheduleChanges extends ScheduleTimes {
  overlap: Overlap | undefined;
  /** Members of the body of POST /push-jobs; null removes one. */
  job: JsonObject | undefined;
  actor: string | undefined;
}

interface RunRequest {
  /** The id of the job. */
  jobId: string;
  actor: string | undefined;
  /** The caller may repeat the request under this key. */
  repeat: RequestKey | undefined;
  record: AuditRecordPart | undefined;
}

/** Limits the schedules that may still fire. */
const MAX_SCHEDULES = 1_000;
/** How many ended jobs of each schedule are kept. */
const KEEP_JOBS = 100;
const DELETE_BATCH = 100;
/** Limits a batch by nodes too: each is a row that is deleted with its job. */
const DELETE_NODES = 10_000;
/** How often a change is tried. It fails only because another change of the schedule succeeds. */
const MAX_TRIES = 32;

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
   * @throws InvalidParametersError, TooManyPushSchedulesError
   */
  async create({ overlap = 'skip', ...request }: ScheduleRequest): Promise<void> {
    const { database } = this.#deps;
    const now = await this.#now();
    const [times] = await checkAll(
      () => parseScheduleTimes(request, now),
      () => this.#checkGroupExists(request.job),
    );
    const schedule = { ...request, ...times, overlap };
    if (!(await insertSchedule(database, schedule, MAX_SCHEDULES))) throw new TooManyPushSchedulesError(MAX_SCHEDULES);
    this.scheduler.trigger();
  }

  /** The next times of such a schedule, at most `count`. @throws InvalidParametersError */
  async times(request: ScheduleTimes, count: number): Promise<Date[]> {
    const { nextAt, ...times } = parseScheduleTimes(request, await this.#now());
    return [nextAt, ...nextTimes(times, nextAt, count - 1)].map((at) => new Date(at));
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
  async pause(id: string, actor: string | undefined): Promise<void> {
    if (!(await pauseSchedule(this.#deps.database, id, actor))) this.#checkNotEnded(await this.get(id));
  }

  /**
   * Times that passed meanwhile are left out.
   * @throws PushScheduleNotFoundError, PushScheduleEndedError
   */
  async resume(id: string, actor: string | undefined): Promise<void> {
    await this.#changing(id, async (schedule) => {
      if (!schedule.is_paused) return true;
      const nextAt = nextTime(timesIn(schedule), await this.#now());
      return resumeSchedule(this.#deps.database, schedule, { nextAt, actor });
    });
    this.scheduler.trigger();
  }

  /**
   * A job that starts at the same moment is that of the schedule before the change, or after it.
   * Writes nothing, no record either, if the schedule is so already.
   * @throws PushScheduleNotFoundError, PushScheduleEndedError, InvalidParametersError,
   * PushScheduleConflictError
   */
  async change(id: string, changes: ScheduleChanges, record: AuditRecordPart | undefined): Promise<void> {
    const { database } = this.#deps;
    await this.#changing(id, async (schedule) => {
      const now = await this.#now();
      const [{ nextAt, ...times }, job] = await checkAll(
        () => changedTimes(schedule, changes, now),
        () => (changes.job === undefined ? schedule.job : changedJob(schedule.job, changes.job)),
        () => this.#checkGroupExists(changes.job ?? {}),
      );
      const overlap = changes.overlap ?? schedule.overlap;
      const wanted = { ...times, nextAt, overlap, job, jobActor: changes.job && changes.actor };
      if (isSoAlready(schedule, wanted)) return true;
      const { at, cron, timeZone: time_zone } = changes;
      const asked = { at, cron, time_zone, overlap: changes.overlap, job: changes.job };
      return changeSchedule(database, {
        id,
        changes: schedule.changes,
        ...times,
        overlap,
        job,
        nextAt,
        asked,
        changedBy: changes.actor,
        isOtherJob: changes.job !== undefined,
        record,
      });
    });
    this.scheduler.trigger();
  }

  /**
   * Starts the job of the schedule now, beside its times, in the name of the caller. Returns the
   * id of the job, which is another one if the caller has repeated the request.
   * @throws PushScheduleNotFoundError, PushScheduleBusyError, PushScheduleConflictError,
   * PushJobKeyConflictError, TooManyPushJobsError, and what POST /push-jobs throws
   */
  async run(id: string, { jobId, actor, repeat, record }: RunRequest): Promise<string> {
    const { pushJobs, servers } = this.#deps;
    for (let tries = 0; tries < MAX_TRIES; tries += 1) {
      const schedule = await this.#whole(id);
      if (!isBusy(schedule)) {
        const wanted = await resolveScheduledJob(schedule.job, { id: jobId, actor, servers, pushJobs });
        const guard = runGuard(schedule, { jobId, actor, key: repeat?.key });
        if (await pushJobs.create({ ...wanted, schedule: id, repeat, record, guard })) return jobId;
      }
      const made = await pushJobs.findByIdempotencyKey(repeat);
      if (made !== undefined) return made;
      if (isBusy(schedule))
        throw new PushScheduleBusyError(id, { overlap: schedule.overlap, jobId: schedule.last_job });
    }
    throw new PushScheduleConflictError(id);
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
    const bounds = { keep: KEEP_JOBS, limit: DELETE_BATCH, nodes: DELETE_NODES };
    return deleteOldJobs(this.#deps.database, { ...bounds, records });
  }

  #now(): Promise<number> {
    return readScheduleTime(this.#deps.database, this.#deps.clock.wallTime());
  }

  /** Reads the schedule again as often as another change comes first. */
  async #changing(id: string, change: (schedule: WholeSchedule) => Promise<boolean>): Promise<void> {
    for (let tries = 0; tries < MAX_TRIES; tries += 1) {
      const schedule = await this.#whole(id);
      this.#checkNotEnded(schedule);
      if (await change(schedule)) return;
    }
    throw new PushScheduleConflictError(id);
  }

  async #checkGroupExists({ group }: JsonObject): Promise<void> {
    if (typeof group === 'string' && (await this.#deps.pushJobs.serverGroup(group)) === undefined)
      throw invalidParameter('job', `group: there is no server group ${JSON.stringify(group)}`);
  }

  async #whole(id: string): Promise<WholeSchedule> {
    const schedule = await readWholeSchedule(this.#deps.database, id);
    if (schedule === undefined) throw new PushScheduleNotFoundError(id);
    return schedule;
  }

  #checkNotEnded({ id, next_at, queued_at }: Pick<ScheduleRow, 'id' | 'next_at' | 'queued_at'>): void {
    if (next_at === null && queued_at === null) throw new PushScheduleEndedError(id);
  }
}

/** `nextAt` and `jobActor`: undefined if they stay. */
function isSoAlready(
  schedule: WholeSchedule,
  {
    nextAt,
    timeZone,
    overlap,
    job,
    jobActor,
  }: Pick<WholeSchedule, 'overlap' | 'job'> & {
    nextAt: number | undefined;
    timeZone: string;
    jobActor: string | undefined;
  },
): boolean {
  const hasTimes = nextAt === undefined && timeZone === schedule.time_zone;
  const hasActor = jobActor === undefined || jobActor === schedule.job_actor;
  return hasTimes && hasActor && overlap === schedule.overlap && isDeepStrictEqual(job, schedule.job);
}

/** Whether the schedule's last job, which has not ended, prevents another one. */
const isBusy = ({ overlap, is_busy }: WholeSchedule): boolean => is_busy && overlap !== 'allow';
