/**
 * Schedules of push jobs: a job at a time, or at the times of a cron expression. Any instance
 * answers for any schedule (law 2). docs/push-schedules.md.
 */

import { z } from 'zod';
import { isDate } from '../../date.ts';
import { isJsonObject, type JsonObject } from '../../json/bounded-json.ts';
import { answer, checkParams, contracts, errorResponse, type Known } from '../contract/contract.ts';
import { cursor, nextCursor } from '../contract/cursor.ts';
import { boundedText, integer, uuid } from '../contract/rules.ts';
import { JOB_STATUSES, nodeCounts, pushJob } from './job-schemas.ts';
import { PUSH_PAGE, pushJobContracts } from './jobs.ts';

export const MAX_CRON_CHARS = 200;
const MAX_PAGE = 1000;

export const OVERLAPS = ['skip', 'queue', 'allow'] as const;
export const SCHEDULE_STATUSES = ['active', 'paused', 'ended'] as const;
export const FIRING_OUTCOMES = ['started', 'skipped', 'missed', 'refused'] as const;

const example = {
  id: '5c4ed01e-1a2b-4c3d-8e4f-5a6b7c8d9e0f',
  status: 'active',
  cron: '30 2 * * mon-fri',
  time_zone: 'Europe/Berlin',
  overlap: 'skip',
  job: { command: 'apt-get -q update', servers: ['564d5b45-3a8c-4c1f-9d0a-0123456789ab'], quorum: '80%' },
  next_at: '2030-01-02T01:30:00.000Z',
  last_at: '2030-01-01T01:30:00.000Z',
  last_outcome: 'started',
  last_job: 'c0ffee00-1a2b-4c3d-8e4f-5a6b7c8d9e0f',
  last_job_status: 'complete',
  last_job_counts: { succeeded: 20, failed: 1 },
  actor: 'alice',
  created_at: '2029-12-01T00:00:00.000Z',
  job_actor: 'bob',
  changed_by: 'bob',
  changed_at: '2029-12-24T00:00:00.000Z',
};

const schedule = answer({
  id: uuid(),
  status: z.enum(SCHEDULE_STATUSES).describe('`ended`: it creates no more jobs by itself'),
  at: z.string().optional(),
  cron: z.string().optional(),
  time_zone: z.string(),
  overlap: z.enum(OVERLAPS),
  job: z
    .record(z.string(), z.unknown())
    .optional()
    .describe('The body of POST /push-jobs. Its file is left out: `file_specified` says that there is one'),
  file_specified: z.boolean().optional(),
  withheld: z
    .boolean()
    .optional()
    .describe('The job and `last_message` are left out: reading them requires a role that may run tasks'),
  next_at: z.string().optional().describe('When it fires next; while it is paused, when it would fire next'),
  queued_at: z.string().optional().describe('The time that waits until the last job has ended'),
  last_at: z.string().optional().describe('When it last fired, or when a caller last ran it'),
  last_outcome: z
    .enum(FIRING_OUTCOMES)
    .optional()
    .describe(
      'What came of it. `skipped`: the last job had not ended. `missed`: no instance was there in time, or it was paused. `refused`: the job could not be created',
    ),
  last_reason: z
    .string()
    .optional()
    .describe('Why. Of `refused`: the code of the error, and the fields of the job that it is about'),
  last_message: z.string().optional().describe('The error in words; left out together with the job'),
  last_job: uuid()
    .optional()
    .describe('The last push job that it started. GET /push-jobs with its `id` as `schedule` lists those before it'),
  last_job_status: z
    .enum(JOB_STATUSES)
    .optional()
    .describe('The present status of this job; absent if the job was deleted'),
  last_job_counts: nodeCounts()
    .optional()
    .describe('Once this job has ended: how many of its nodes are in each state, as its `counts`'),
  actor: z.string().nullable().describe('Who created it'),
  created_at: z.string(),
  job_actor: z
    .string()
    .nullable()
    .describe('Who created it or was the last to change its `job`: its jobs start in this name'),
  changed_by: z.string().optional().describe('Who changed, paused or resumed it last; absent: nobody did'),
  changed_at: z.string().optional().describe('When'),
}).meta({ id: 'PushSchedule' });

export type PushSchedule = Known<z.output<typeof schedule>>;

const page = answer({
  schedules: z.array(schedule),
  next: nextCursor(),
}).meta({ id: 'PushSchedulePage' });

/** A later time has, in UTC, a year of five digits, which nothing here can read. */
const LAST_TIME_MS = Date.parse('9999-12-31T23:59:59.999Z');

/** A time with its offset: without one, each program would take another time zone. */
const time = z
  .string('value was not a string')
  .refine(
    (value) =>
      /^[1-9]\d{3}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)$/i.test(value) &&
      Date.parse(value) <= LAST_TIME_MS &&
      isDate(value.slice(0, 10)),
    'value is not an ISO 8601 time with an offset, such as 2030-01-01T02:30:00Z',
  )
  .transform((value) => new Date(value).toISOString())
  .meta({ type: 'string', format: 'date-time' });

const request = pushJobContracts.CreatePushJob;

/** Limits the members of the job of a schedule; a body of POST /push-jobs can have fewer. */
const MAX_MEMBERS = 100;

/** The body is stored as it was sent, and read again whenever the schedule creates a job. */
const jobBody = (findIssues: (value: JsonObject) => readonly string[]) =>
  z
    .unknown()
    .transform((value, context): JsonObject => {
      if (!isJsonObject(value)) {
        context.addIssue('value is not an object: the body of POST /push-jobs');
        return z.NEVER;
      }
      if (Object.keys(value).length > MAX_MEMBERS) {
        context.addIssue(`value has more than ${MAX_MEMBERS} members`);
        return z.NEVER;
      }
      for (const issue of findIssues(value)) context.addIssue(issue);
      return value;
    })
    .meta({ type: 'object', additionalProperties: {}, maxProperties: MAX_MEMBERS });

/** A body of POST /push-jobs. */
const job = jobBody(findJobIssues);

/** Some members of a job. Whether they fit its other members is checked where those are known. */
const jobMembers = jobBody(() => []);

const MAX_ISSUES = 20;
const MAX_NAME_CHARS = 100;

/** One issue for each of these names that is not a member of push jobs. */
export const findUnknownMembers = (names: readonly string[]): string[] =>
  names
    .filter((name) => !Object.hasOwn(request.params.shape, name))
    .slice(0, MAX_ISSUES)
    .map((name) => `${name.slice(0, MAX_NAME_CHARS)}: a push job has no such member`);

/** Why the body cannot be the job of a schedule. */
export function findJobIssues(body: JsonObject): string[] {
  if (body.secret_env !== undefined)
    return ['secret_env: a schedule keeps no secrets, because it keeps its job for as long as it exists'];
  const others = checkParams(request, body)
    .issues.slice(0, MAX_ISSUES)
    .map(({ field, message }) => (field === '' ? message : `${field.slice(0, MAX_NAME_CHARS)}: ${message}`));
  return [...new Set([...findUnknownMembers(Object.keys(body)), ...others])].slice(0, MAX_ISSUES);
}

const noSchedule = { 404: errorResponse('No such push schedule', 'ResourceNotFound') };
const hasEnded = { 409: errorResponse('The schedule has ended', 'PushScheduleEnded') };
const ofSchedule = { id: uuid().describe('As the schedule was answered') };
const common = { tag: 'push jobs', origin: 'own', preconditions: [] } as const;

const overlap = z.enum(OVERLAPS, `value is none of ${OVERLAPS.join(', ')}`);

const times = {
  at: time.optional().describe('Once, at this time, which has an offset. Either this or `cron`'),
  cron: boundedText(MAX_CRON_CHARS)
    .optional()
    .describe('Minute, hour, day of the month, month and day of the week; or a name such as `@daily`'),
  time_zone: boundedText(64).optional().describe('Time zone of `cron`, such as Europe/Berlin; UTC when absent'),
};

export const DEFAULT_TIMES = 5;
const MAX_TIMES = 100;

export const pushScheduleContracts = contracts({
  CreatePushSchedule: {
    ...common,
    method: 'POST',
    path: '/push-schedules',
    summary: 'Creates push jobs at a time, or at the times of a cron expression',
    params: z.object({
      ...times,
      overlap: overlap
        .optional()
        .describe(
          'When the last job has not ended: `skip` leaves the time out, `queue` waits (at most one time does), `allow` starts another job; skip when absent',
        ),
      job: job.describe(
        'The body of POST /push-jobs, without `secret_env`. It is checked now, and again each time: its servers are those that there are then. Its `group` must exist now',
      ),
    }),
    responses: {
      201: { description: 'Created', schema: schedule, example },
      400: errorResponse('All that is wrong with it, in `errors`; nothing was created', 'InvalidParameters'),
      409: errorResponse('The maximum number of schedules exists already; delete some', 'TooManyPushSchedules'),
    },
  },
  ListPushSchedules: {
    ...common,
    method: 'GET',
    path: '/push-schedules',
    summary:
      'Schedules of push jobs, newest first. A page may hold fewer than `limit`, because their jobs may be large: the last one has no `next`',
    params: z.object({
      status: z
        .enum(SCHEDULE_STATUSES, `value is none of ${SCHEDULE_STATUSES.join(', ')}`)
        .optional()
        .describe('Only schedules with this status'),
      after: cursor.optional().describe('The `next` of a page'),
      limit: integer('limit', 1, MAX_PAGE).optional().describe(`${PUSH_PAGE} when absent`),
    }),
    responses: {
      200: {
        description: 'OK',
        schema: page,
        example: { schedules: [example], next: `1890777600000000_${example.id}` },
      },
    },
  },
  ListPushScheduleTimes: {
    ...common,
    method: 'GET',
    path: '/push-schedules/times',
    summary: 'The next times of a schedule that could be created with these parameters; nothing is created',
    params: z.object({
      ...times,
      limit: integer('limit', 1, MAX_TIMES).optional().describe(`${DEFAULT_TIMES} when absent`),
    }),
    responses: {
      200: {
        description: 'In order',
        schema: answer({ times: z.array(z.string()) }),
        example: { times: ['2030-01-02T01:30:00.000Z', '2030-01-03T01:30:00.000Z'] },
      },
      400: errorResponse('All that is wrong with the times, in `errors`', 'InvalidParameters'),
    },
  },
  GetPushSchedule: {
    ...common,
    method: 'GET',
    path: '/push-schedules/:id',
    summary: 'A schedule, its last and its next time',
    params: z.object(ofSchedule),
    responses: { 200: { description: 'OK', schema: schedule, example }, ...noSchedule },
  },
  UpdatePushSchedule: {
    ...common,
    method: 'POST',
    path: '/push-schedules/:id',
    summary:
      'Changes a schedule; what is absent stays. A job that starts at the same moment is that of the schedule before the change or after it. Without another `at`, `cron` or `time_zone` its next time stays',
    params: z.object({
      ...ofSchedule,
      at: times.at.describe('Once, at this time, which has an offset, instead of its times'),
      cron: times.cron.describe('A cron expression, instead of its times'),
      time_zone: times.time_zone.describe('Time zone of `cron`'),
      overlap: overlap.optional(),
      job: jobMembers
        .optional()
        .describe(
          'Members of its job, each of which replaces the one that it has; null removes one. `servers`, `where`, `group` and `from_job` replace each other. If it is given, the jobs start in the name of the caller from now on (`job_actor`)',
        ),
    }),
    responses: {
      200: { description: 'Changed', schema: schedule, example },
      400: errorResponse('A value is not valid; nothing was changed', 'InvalidParameters'),
      ...noSchedule,
      409: errorResponse(
        'The schedule has ended, or other requests changed it at the same moment; nothing was changed',
        'PushScheduleEnded',
        'PushScheduleConflict',
      ),
    },
  },
  RunPushSchedule: {
    ...common,
    method: 'POST',
    path: '/push-schedules/:id/run',
    summary:
      'Starts the job of a schedule now, in the name of the caller, also while it is paused or after its end. Its next time stays',
    params: z.object(ofSchedule),
    requestHeaders: pushJobContracts.CreatePushJob.requestHeaders,
    responses: {
      201: { description: 'Started', schema: pushJob },
      400: errorResponse('The job cannot be created now, for example because no server matches', 'InvalidParameters'),
      ...noSchedule,
      409: errorResponse(
        'The last job of the schedule has not ended and `overlap` is not `allow`, the key was used with another body, or the schedule was changed at the same moment; nothing was started',
        'PushScheduleBusy',
        'IdempotencyConflict',
        'PushScheduleConflict',
      ),
      503: errorResponse('TooManyPushJobs: nothing was started', 'TooManyPushJobs'),
    },
  },
  PausePushSchedule: {
    ...common,
    method: 'PUT',
    path: '/push-schedules/:id/pause',
    summary:
      'Starts no job until it is resumed, and leaves out a time that waits; a job that was started goes on. Repeating it is harmless',
    params: z.object(ofSchedule),
    responses: { 200: { description: 'Paused', schema: schedule }, ...noSchedule, ...hasEnded },
  },
  ResumePushSchedule: {
    ...common,
    method: 'PUT',
    path: '/push-schedules/:id/resume',
    summary: 'Goes on with the next time; those that passed meanwhile are left out. Repeating it is harmless',
    params: z.object(ofSchedule),
    responses: { 200: { description: 'Resumed', schema: schedule }, ...noSchedule, ...hasEnded },
  },
  DeletePushSchedule: {
    ...common,
    method: 'DELETE',
    path: '/push-schedules/:id',
    summary: 'Deletes a schedule; its jobs stay and go on',
    params: z.object(ofSchedule),
    responses: { 204: { description: 'Deleted' }, ...noSchedule },
  },
});
