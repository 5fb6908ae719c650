/**
 * A schedule as a caller may see it. Its job may hold anything, and a message may repeat parts of
 * the job, so only callers who may see the contents of tasks see them. Pure.
 */
import { definedFields } from '../../../../platform/defined-fields.ts';
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
    ...definedFields({ at: time(row.at), cron: row.cron }),
    time_zone: row.time_zone,
    overlap: row.overlap,
    ...(hasRight(actor, 'task-contents') ? contentsOf(row) : { withheld: true }),
    ...definedFields({
      next_at: time(row.next_at),
      queued_at: time(row.queued_at),
      last_at: time(row.last_at),
      last_outcome: row.last_outcome,
      last_reason: row.last_reason,
      last_job: row.last_job,
    }),
    ...(row.last_job_state === null ? {} : { last_job_status: toJobStatus(row.last_job_state, row.last_job_outcome) }),
    ...definedFields({ last_job_counts: row.last_job_counts }),
    actor: row.actor,
    created_at: row.created_at.toISOString(),
    job_actor: row.job_actor,
    ...definedFields({ changed_by: row.changed_by, changed_at: time(row.changed_at) }),
  };
}

const contentsOf = ({ job, has_file, last_message }: ScheduleRow) => ({
  job,
  ...(has_file ? { file_specified: true } : {}),
  ...definedFields({ last_message }),
});
