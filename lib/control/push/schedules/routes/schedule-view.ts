/**
 * A schedule as a caller may see it. Its job may hold anything, and a message may repeat parts of
 * the job, so only callers who may see the contents of tasks see them. Pure.
 */
import { optionalField } from '../../../../platform/optional-field.ts';
import type { PushSchedule } from '../../../../protocol/api/push/schedules.ts';
import { type Actor, hasRight } from '../../../access/token.ts';
import { toJobStatus } from '../../push-job.ts';
import { toScheduleStatus } from '../schedule.ts';
import type { ScheduleRow } from '../schedule-store.ts';

export function toPushSchedule(row: ScheduleRow, actor: Actor): PushSchedule {
  const time = (at: Date | null) => at?.toISOString();
  return {
    id: row.id,
    status: toScheduleStatus(row.is_paused, row.next_at, row.queued_at),
    ...optionalField('at', time(row.at)),
    ...optionalField('cron', row.cron),
    time_zone: row.time_zone,
    overlap: row.overlap,
    ...(hasRight(actor, 'task-contents') ? contentsOf(row) : { withheld: true }),
    ...optionalField('next_at', time(row.next_at)),
    ...optionalField('queued_at', time(row.queued_at)),
    ...optionalField('last_at', time(row.last_at)),
    ...optionalField('last_outcome', row.last_outcome),
    ...optionalField('last_reason', row.last_reason),
    ...optionalField('last_job', row.last_job),
    ...(row.last_job_state === null ? {} : { last_job_status: toJobStatus(row.last_job_state, row.last_job_outcome) }),
    ...optionalField('last_job_counts', row.last_job_counts),
    actor: row.actor,
    created_at: row.created_at.toISOString(),
    job_actor: row.job_actor,
    ...optionalField('changed_by', row.changed_by),
    ...optionalField('changed_at', time(row.changed_at)),
  };
}

const contentsOf = ({ job, has_file, last_message }: ScheduleRow) => ({
  job,
  ...(has_file ? { file_specified: true } : {}),
  ...optionalField('last_message', last_message),
});
