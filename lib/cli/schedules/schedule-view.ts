/** What the command line shows of schedules. */
import type { PushSchedule } from '../../protocol/api/push/schedules.ts';
import type { Context } from '../invocation/context.ts';
import { shortTime } from '../terminal/duration.ts';
import type { Column } from '../terminal/table.ts';

export const SCHEDULE_COLUMNS: readonly Column<PushSchedule>[] = [
  { head: 'ID', of: ({ id }) => id, abbreviates: true },
  { head: 'STATUS', of: ({ status }) => status },
  { head: 'TIMES', of: timesOf, shrinks: true },
  { head: 'NEXT', of: nextOf },
  { head: 'LAST', of: ({ last_at }) => shortTime(last_at), optional: true },
  { head: 'OUTCOME', of: ({ last_outcome }) => last_outcome ?? '-', optional: true },
  { head: 'LAST JOB', of: resultOf, optional: true },
  { head: 'COMMAND', of: commandOf, shrinks: true },
];

/** Members of its job that have a line of their own. */
const SHOWN_OTHERWISE = new Set(['command', 'servers', 'where', 'group', 'from_job', 'from_status', 'file']);

/** One schedule, its last and its next time. */
export function showSchedule({ output }: Context, schedule: PushSchedule): void {
  if (output.json) return output.document(schedule);
  const { user, dir, env, ...others } = (schedule.job ?? {}) as Readonly<Record<string, unknown>>;
  output.facts([
    ['schedule', schedule.id],
    ['status', schedule.status],
    ['times', timesOf(schedule)],
    ['overlap', schedule.overlap],
    ['next', nextOf(schedule)],
    ['waiting', schedule.queued_at && shortTime(schedule.queued_at)],
    ['last', shortTime(schedule.last_at)],
    ['outcome', outcomeOf(schedule)],
    ['last job', schedule.last_job && `${schedule.last_job}: ${resultOf(schedule)}`],
    ['servers', targetsIn(schedule)],
    ['command', commandOf(schedule)],
    ['user', user],
    ['dir', dir],
    ['env', env],
    ['file', schedule.file_specified ? 'yes' : undefined],
    ...Object.entries(others).filter(([name]) => !SHOWN_OTHERWISE.has(name)),
    ['created', byWhom(schedule.created_at, schedule.actor)],
    ['changed', byWhom(schedule.changed_at, schedule.changed_by)],
    ['job actor', schedule.job_actor],
  ]);
}

/** A paused schedule keeps its next time, but starts no job then. */
function nextOf({ next_at, status }: PushSchedule): string {
  return status === 'active' ? shortTime(next_at) : '-';
}

const byWhom = (at: string | undefined, actor: string | null | undefined): string | undefined =>
  at && `${shortTime(at)} by ${actor ?? 'unknown'}`;

/** The message repeats the fields that follow the code in the reason. */
function outcomeOf({ last_outcome, last_reason, last_message }: PushSchedule): string | undefined {
  if (last_outcome === undefined || last_reason === undefined) return last_outcome;
  if (last_message === undefined) return `${last_outcome}: ${last_reason}`;
  return `${last_outcome}: ${last_message} (${last_reason.split(':', 1)[0]})`;
}

/** How its last job went: `complete, 20 of 21 ok`. */
function resultOf({ last_job, last_job_status, last_job_counts }: PushSchedule): string {
  if (last_job === undefined) return '-';
  if (last_job_status === undefined) return 'deleted';
  if (last_job_counts === undefined) return last_job_status;
  const nodes = Object.values(last_job_counts).reduce((sum, count) => sum + count, 0);
  return `${last_job_status}, ${last_job_counts.succeeded ?? 0} of ${nodes} ok`;
}

function timesOf({ at, cron, time_zone }: PushSchedule): string {
  return cron === undefined ? shortTime(at) : `${cron} ${time_zone}`;
}

/** Which servers its jobs are for. */
function targetsIn({ job = {} }: PushSchedule): string | undefined {
  const { servers, where, group, from_job, from_status } = job as Readonly<Record<string, unknown>>;
  if (Array.isArray(servers)) return servers.length === 1 ? String(servers[0]) : `${servers.length} servers by uuid`;
  if (Array.isArray(where)) return where.join(' ') === 'uuid=*' ? 'all' : where.join(' ');
  if (group !== undefined) return `those of server group ${group}`;
  if (from_job === undefined) return undefined;
  return `those of push job ${from_job}${from_status === undefined ? '' : ` that are ${from_status}`}`;
}

function commandOf({ job }: PushSchedule): string {
  return typeof job?.command === 'string' ? job.command : '-';
}
