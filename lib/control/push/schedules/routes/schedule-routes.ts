/** Answers the routes of schedules of push jobs (lib/protocol/api/push/schedules.ts). */
import { definedFields } from '../../../../platform/defined-fields.ts';
import type { Random } from '../../../../platform/random.ts';
import { PUSH_PAGE } from '../../../../protocol/api/push/jobs.ts';
import { DEFAULT_TIMES, pushScheduleContracts } from '../../../../protocol/api/push/schedules.ts';
import { idempotencyKey } from '../../../http/idempotency-key.ts';
import { bind, empty, ok, type Route, recordedInCommit } from '../../../http/route.ts';
import type { PushJobs } from '../../push-jobs.ts';
import { createRunRequestKey } from '../../request/job-request.ts';
import { toPushJob } from '../../routes/push-job-view.ts';
import type { PushSchedules } from '../schedules.ts';
import { toPushSchedule } from './schedule-view.ts';

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
      CreatePushSchedule: recordedInCommit(async ({ params, actor, withAuditRecord }) => {
        const { at, cron, time_zone: timeZone, overlap, job } = params;
        const id = random.uuid();
        const schedule = { id, at, cron, timeZone, overlap, job, actor: actor.name };
        await withAuditRecord((record) => pushSchedules.create({ ...schedule, record }), id);
        return { status: 201 as const, body: toPushSchedule(await pushSchedules.get(id), actor) };
      }),
      async ListPushSchedules({ params: { status, after, limit = PUSH_PAGE }, actor }) {
        const { schedules, next } = await pushSchedules.list({ status, after, limit, bytes: PAGE_BYTES });
        return ok({ schedules: schedules.map((one) => toPushSchedule(one, actor)), ...definedFields({ next }) });
      },
      async ListPushScheduleTimes({ params: { at, cron, time_zone: timeZone, limit = DEFAULT_TIMES } }) {
        const times = await pushSchedules.times({ at, cron, timeZone }, limit);
        return ok({ times: times.map((one) => one.toISOString()) });
      },
      GetPushSchedule: async ({ params, actor }) => ok(toPushSchedule(await pushSchedules.get(params.id), actor)),
      UpdatePushSchedule: recordedInCommit(async ({ params, actor, withAuditRecord }) => {
        const { id, at, cron, time_zone: timeZone, overlap, job } = params;
        const changes = { at, cron, timeZone, overlap, job, actor: actor.name };
        await withAuditRecord((record) => pushSchedules.change(id, changes, record), id);
        return ok(toPushSchedule(await pushSchedules.get(id), actor));
      }),
      RunPushSchedule: recordedInCommit(async ({ params: { id }, actor, header, withAuditRecord }) => {
        const repeat = createRunRequestKey(id, idempotencyKey(header), actor.name);
        const jobId = (await pushJobs.findByIdempotencyKey(repeat)) ?? (await run(random.uuid()));
        function run(newJobId: string): Promise<string> {
          const request = { jobId: newJobId, actor: actor.name, repeat };
          return withAuditRecord((record) => pushSchedules.run(id, { ...request, record }), newJobId);
        }
        return { status: 201 as const, body: toPushJob(await pushJobs.get(jobId), actor) };
      }),
      async PausePushSchedule({ params: { id }, actor }) {
        await pushSchedules.pause(id, actor.name);
        return ok(toPushSchedule(await pushSchedules.get(id), actor));
      },
      async ResumePushSchedule({ params: { id }, actor }) {
        await pushSchedules.resume(id, actor.name);
        return ok(toPushSchedule(await pushSchedules.get(id), actor));
      },
      async DeletePushSchedule({ params }) {
        await pushSchedules.delete(params.id);
        return empty(204);
      },
    },
    { ListPushSchedules: { answerBytes: ANSWER_BYTES } },
  );
}
