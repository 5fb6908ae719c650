/** SQL of what callers do with a schedule that exists: change, pause, resume, delete and run it. */
import type { Queryable } from '../../../platform/postgres/database.ts';
import {
  combineIfChanged,
  SqlParameters,
  type StatementPart,
  statementName,
} from '../../../platform/postgres/sql-text.ts';
import { scheduleChangeDetails } from '../audit-details.ts';
import type { PushJobGuard } from '../push-store.ts';
import { type FullSchedule, type NewSchedule, toTimestamp } from './schedule-store.ts';

/** A schedule with everything that callers run or change. */
export interface WholeSchedule extends FullSchedule {
  is_paused: boolean;
  last_job: string | null;
}

export async function readWholeSchedule(database: Queryable, id: string): Promise<WholeSchedule | undefined> {
  const { rows } = await database.query<WholeSchedule>(
    `select s.id, s.at, s.cron, s.time_zone, s.overlap, s.job, s.job_actor, s.is_paused, s.next_at,
         s.queued_at, s.changes, s.last_job, coalesce(j.state, 'ended') <> 'ended' as is_busy
       from cnapi_push_schedules s left join cnapi_push_jobs j on j.id = s.last_job
       where s.id = $1::uuid`,
    [id],
  );
  return rows[0];
}

export interface ChangedSchedule extends Omit<NewSchedule, 'actor' | 'nextAt'> {
  /** How many changes the schedule had when it was read. */
  changes: number;
  changedBy: string | undefined;
  /** The caller has changed its job, which starts in the caller's name from now on. */
  isOtherJob: boolean;
  /** The new next time; undefined if the next time stays. */
  nextAt: number | undefined;
  /** What the caller asked for, for the audit. */
  asked: object;
}

/**
 * Replaces what callers may change, and lets any instance try again immediately. False: it has
 * ended, does not exist, or was changed since it was read; nothing is recorded then, so that the
 * records have the order of the changes.
 */
export async function changeSchedule(database: Queryable, schedule: ChangedSchedule): Promise<boolean> {
  const { id, changes, at, cron, timeZone, overlap, job, nextAt, asked, changedBy, isOtherJob, record } = schedule;
  const { text, values } = combineIfChanged(
    `update cnapi_push_schedules s
       set at = $3::timestamptz, cron = $4::text, time_zone = $5::text, overlap = $6::text, job = $7::json,
         job_bytes = octet_length($7::text), next_at = coalesce($8::timestamptz, s.next_at), changes = s.changes + 1,
         changed_by = $9::text, changed_at = cnapi_now(),
         job_actor = case when $10::bool then $9::text else s.job_actor end,
         held_until = null, tries = 0, failure_reason = null, failure_message = null, updated_at = cnapi_now()
       where s.id = $1::uuid and s.changes = $2::int and (s.next_at is not null or s.queued_at is not null)`,
    new SqlParameters([
      ...[id, changes, toTimestamp(at), cron ?? null, timeZone, overlap, JSON.stringify(job), toTimestamp(nextAt)],
      ...[changedBy ?? null, isOtherJob],
    ]),
    record &&
      ((all) => {
        const servers = all.add(job.servers ?? null, 'uuid[]');
        return record(all, all.add(scheduleChangeDetails(asked), 'jsonb'), servers, 'changed');
      }),
  );
  const name = statementName('change push schedule', record);
  const { rowCount } = await database.query(text, values, { name });
  return rowCount > 0;
}

/**
 * A time that waits is left out. If there is no other time, it becomes the next one again, so the
 * schedule can be changed or resumed. False: it has ended, or does not exist.
 */
export async function pauseSchedule(database: Queryable, id: string, actor: string | undefined): Promise<boolean> {
  const { rowCount } = await database.query(
    `update cnapi_push_schedules s
       set is_paused = true, next_at = coalesce(s.next_at, s.queued_at), queued_at = null, held_until = null, tries = 0,
         failure_reason = null, failure_message = null, updated_at = cnapi_now(),
         changed_by = case when s.is_paused then s.changed_by else $2::text end,
         changed_at = case when s.is_paused then s.changed_at else cnapi_now() end
       where s.id = $1::uuid and (s.next_at is not null or s.queued_at is not null)`,
    [id, actor ?? null],
  );
  return rowCount > 0;
}

/**
 * Continues with the time `nextAt`; undefined: the only time has passed, and the schedule ends.
 * False: it is not paused, does not exist, or was changed.
 */
export async function resumeSchedule(
  database: Queryable,
  { id, changes }: Pick<WholeSchedule, 'id' | 'changes'>,
  { nextAt, actor }: { nextAt: number | undefined; actor: string | undefined },
): Promise<boolean> {
  const { rowCount } = await database.query(
    `update cnapi_push_schedules s
       set is_paused = false, next_at = $2::timestamptz, updated_at = cnapi_now(),
         changed_by = $4::text, changed_at = cnapi_now(),
         last_at = case when $2::timestamptz is null then s.next_at else s.last_at end,
         last_outcome = case when $2::timestamptz is null then 'missed' else s.last_outcome end,
         last_reason = case when $2::timestamptz is null then 'it was paused' else s.last_reason end,
         last_message = case when $2::timestamptz is null then null else s.last_message end
       where s.id = $1::uuid and s.is_paused and s.changes = $3::int`,
    [id, toTimestamp(nextAt), changes, actor ?? null],
  );
  return rowCount > 0;
}

/** Deletes the schedule. The jobs that it started stay. */
export async function deleteSchedule(database: Queryable, id: string): Promise<boolean> {
  const { rowCount } = await database.query('delete from cnapi_push_schedules s where s.id = $1::uuid', [id]);
  return rowCount > 0;
}

/**
 * The guard of a job that a caller starts beside the times. Not met: the schedule was changed or
 * deleted, the last job has not ended, or the caller has a job with this key.
 */
export function runGuard(
  { id, changes }: Pick<WholeSchedule, 'id' | 'changes'>,
  { jobId, actor, key }: { jobId: string; actor: string | undefined; key: string | undefined },
): PushJobGuard {
  const condition: StatementPart = (parameters) =>
    `cnapi_run_push_schedule(${[
      parameters.add(id, 'uuid'),
      parameters.add(changes, 'int'),
      parameters.add(jobId, 'uuid'),
      parameters.add(actor ?? null, 'text'),
      parameters.add(key ?? null, 'text'),
    ].join(', ')})`;
  return { name: 'a schedule may run', condition };
}
