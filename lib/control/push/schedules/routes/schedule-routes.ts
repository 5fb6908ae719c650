/** Answers the routes of schedules of push jobs (lib/protocol/api/push/schedules.ts). */
import { optionalField } from '../../../../platform/optional-field.ts';
import type { Random } from '../../../../platform/random.ts';
import { PUSH_PAGE } from '../../../../protocol/api/push/jobs.ts';
import { DEFAULT_TIMES, type PushSchedule, pushScheduleContracts } from '../../../../protocol/api/push/schedules.ts';
import { type Actor, hasRight } from '../../../access/token.ts';
import { idempotencyKey } from '../../../http/idempotency-key.ts';
import { bind, empty, ok, type Route } from '../../../http/route.ts';
import { toJobStatus } from '../../push-job.ts';
import type { PushJobs } from '../../push-jobs.ts';
import { createRunRequestKey } from '../../request/job-request.ts';
import { pushJobFor } from '../../routes/push-job-view.ts';
import { toScheduleStatus } from '../schedule.ts';
import type { ScheduleRow } from '../schedule-store.ts';
import type { PushSchedules } from '../schedules.ts';

/** Limits the jobs of a page; the last one may exceed it. */
const PAGE_BYTES = 1024 * 1024;
/** A page, its last job, which is a body of POST /push-jobs, and the rest of its schedules. */
const ANSWER_BYTES = PAGE_BYTES + 2 * 1024 * 1024;

interface ScheduleRouteDeps {
  pushSchedules: Pick<
    PushSchedules,
    'create' | 'times' | 'get' | 'list' | 'change' | 'run' | 'pause' | 'resume' | 'delete'
  >;
  pushJobs: Pick<PushJobs, 'findByIdempotencyKey' | 'get'>;
  random: Random;
}

export function pushScheduleRoutes({ pushSchedules, pushJobs, random }: ScheduleRouteDeps): Route[] {
  return bind(
    pushScheduleContracts,
    {
      async CreatePushSchedule({ params, actor, withRecord }) {
        const { at, cron, time_zone: timeZone, overlap, job } = params;
        const id = random.uuid();
        const schedule = { id, at, cron, timeZone, overlap, job, actor: actor.name };
        await withRecord((record) => pushSchedules.create({ ...schedule, record }), id);
        return { status: 201 as const, body: scheduleFor(actor, await pushSchedules.get(id)) };
      },
      async ListPushSchedules({ params: { status, after, limit = PUSH_PAGE }, actor }) {
        const { schedules, next } = await pushSchedules.list({ status, after, limit, bytes: PAGE_BYTES });
        return ok({ schedules: schedules.map((one) => scheduleFor(actor, one)), ...optionalField('next', next) });
      },
      async ListPushScheduleTimes({ params: { at, cron, time_zone: timeZone, limit = DEFAULT_TIMES } }) {
        const times = await pushSchedules.times({ at, cron, timeZone }, limit);
        return ok({ times: times.map((one) => one.toISOString()) });
      },
      GetPushSchedule: async ({ params, actor }) => ok(scheduleFor(actor, await pushSchedules.get(params.id))),
      async UpdatePushSchedule({ params, actor, withRecord }) {
        const { id, at, cron, time_zone: timeZone, overlap, job } = params;
        const changes = { at, cron, timeZone, overlap, job, actor: actor.name };
        await withRecord((record) => pushSchedules.change(id, changes, record), id);
        return ok(scheduleFor(actor, await pushSchedules.get(id)));
      },
      async RunPushSchedule({ params: { id }, actor, header, withRecord }) {
        const repeat = createRunRequestKey(id, idempotencyKey(header), actor.name);
        const job = (await pushJobs.findByIdempotencyKey(repeat)) ?? (await run(random.uuid()));
        function run(newJob: string): Promise<string> {
          const request = { job: newJob, actor: actor.name, repeat };
          return withRecord((record) => pushSchedules.run(id, { ...request, record }), newJob);
        }
        return { status: 201 as const, body: pushJobFor(actor, await pushJobs.get(job)) };
      },
      async PausePushSchedule({ params: { id }, actor }) {
        await pushSchedules.pause(id, actor.name);
        return ok(scheduleFor(actor, await pushSchedules.get(id)));
      },
      async ResumePushSchedule({ params: { id }, actor }) {
        await pushSchedules.resume(id, actor.name);
        return ok(scheduleFor(actor, await pushSchedules.get(id)));
      },
      async DeletePushSchedule({ params }) {
        await pushSchedules.delete(params.id);
        return empty(204);
      },
    },
    {
      CreatePushSchedule: { commitsRecord: true },
      UpdatePushSchedule: { commitsRecord: true },
      RunPushSchedule: { commitsRecord: true },
      ListPushSchedules: { answerBytes: ANSWER_BYTES },
    },
  );
}

/** As the caller may see it: the job may hold anything, and a message may repeat parts of it. */
function scheduleFor(actor: Actor, row: ScheduleRow): PushSchedule {
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
