/** SQL of schedules of push jobs. */

import type { Queryable } from '../../../platform/postgres/database.ts';
import {
  combineStatement,
  fromMicroseconds,
  inMicroseconds,
  SqlParameters,
  type StatementPart,
  statementName,
} from '../../../platform/postgres/sql-text.ts';
import { type Cursor, formatCursor } from '../../../protocol/api/contract/cursor.ts';
import type { NodeStatus } from '../../../protocol/api/push/job-schemas.ts';
import type { JsonObject } from '../../../protocol/json/bounded-json.ts';
import type { AuditRecordPart, ExpiryPart } from '../../audit-part.ts';
import { END_DETAILS, newScheduleDetails } from '../audit-details.ts';
import type { PushJobOutcome, PushJobState } from '../push-job.ts';
import type { PushJobGuard } from '../push-store.ts';
import type { FiringOutcome, Overlap, ScheduleStatus } from './schedule.ts';

export interface NewSchedule {
  id: string;
  /** Milliseconds since 1970; a schedule has this or `cron`. */
  at: number | undefined;
  cron: string | undefined;
  timeZone: string;
  overlap: Overlap;
  /** The body of POST /push-jobs. */
  job: JsonObject;
  actor: string | undefined;
  nextAt: number;
  /** A record of who asks for it, written in the same statement. */
  record?: AuditRecordPart | undefined;
}

/** False if there are `limit` that may still fire. */
export async function insertSchedule(database: Queryable, schedule: NewSchedule, limit: number): Promise<boolean> {
  const { id, at, cron, timeZone, overlap, job, actor, nextAt, record } = schedule;
  const { text, values } = combineStatement(
    `select cnapi_create_push_schedule($1::uuid, $2::timestamptz, $3::text, $4::text, $5::text, $6::json, $7::text,
       $8::timestamptz, $9::int) as is_created`,
    new SqlParameters([
      ...[id, toTimestamp(at), cron ?? null, timeZone, overlap, JSON.stringify(job), actor ?? null],
      ...[toTimestamp(nextAt), limit],
    ]),
    record && ((all) => record(all, all.add(newScheduleDetails(job), 'jsonb'), all.add(job.servers ?? null, 'uuid[]'))),
  );
  const name = statementName('create push schedule', record);
  const { rows } = await database.query<{ is_created: boolean }>(text, values, { name });
  return rows[0]?.is_created === true;
}

export interface ScheduleRow {
  id: string;
  at: Date | null;
  cron: string | null;
  time_zone: string;
  overlap: Overlap;
  /** The body of POST /push-jobs without its file. */
  job: JsonObject;
  has_file: boolean;
  actor: string | null;
  /** The actor in whose name the jobs of the schedule start. */
  job_actor: string | null;
  changed_by: string | null;
  changed_at: Date | null;
  is_paused: boolean;
  next_at: Date | null;
  queued_at: Date | null;
  last_at: Date | null;
  last_outcome: FiringOutcome | null;
  last_reason: string | null;
  /** Only for those who may see the job. */
  last_message: string | null;
  last_job: string | null;
  /** Null: there is none, or it was deleted. */
  last_job_state: PushJobState | null;
  last_job_outcome: PushJobOutcome | null;
  /** Number of nodes by state; null until it has ended, because they would have to be counted. */
  last_job_counts: Partial<Record<NodeStatus, number>> | null;
  created_at: Date;
}

const columns = `s.id, s.at, s.cron, s.time_zone, s.overlap, (s.job::jsonb - 'file')::json as job,
  s.job->>'file' is not null as has_file, s.actor, s.job_actor, s.changed_by, s.changed_at, s.is_paused, s.next_at,
  s.queued_at, s.last_at, s.last_outcome, s.last_reason, s.last_message, s.last_job, j.state as last_job_state,
  j.outcome as last_job_outcome, j.counts as last_job_counts, s.created_at`;
const WITH_LAST_JOB = 'left join cnapi_push_jobs j on j.id = s.last_job';

export async function readSchedule(database: Queryable, id: string): Promise<ScheduleRow | undefined> {
  const { rows } = await database.query<ScheduleRow>(
    `select ${columns} from cnapi_push_schedules s ${WITH_LAST_JOB} where s.id = $1::uuid`,
    [id],
  );
  return rows[0];
}

export interface ScheduleFilter {
  status?: ScheduleStatus | undefined;
  /** The end of the page before. */
  after?: Cursor | undefined;
  limit: number;
  bytes: number;
}

/**
 * The newest first, at most `limit`, and only the first of them whose jobs have `bytes` together.
 * `next`: where the next page begins; undefined if there is none.
 */
export async function listSchedules(
  database: Queryable,
  { status, after, limit, bytes }: ScheduleFilter,
): Promise<{ schedules: ScheduleRow[]; next: string | undefined }> {
  const { rows } = await database.query<ScheduleRow & { found: number; created_us: string }>(
    `select ${columns}, p.found::int, ${inMicroseconds('s.created_at')} as created_us
       from (
         select w.id, count(*) over () as found,
             sum(w.job_bytes) over (order by w.created_at desc, w.id desc) - w.job_bytes as before
           from (
             select s.id, s.created_at, s.job_bytes from cnapi_push_schedules s
               where ($1::text is null or $1::text = case when s.next_at is null and s.queued_at is null then 'ended'
                   when s.is_paused then 'paused' else 'active' end)
                 and ($2::bigint is null or (s.created_at, s.id) <
                   (${fromMicroseconds('$2::bigint')}, $3::uuid))
               order by s.created_at desc, s.id desc limit $4::int
           ) as w
       ) as p
         join cnapi_push_schedules s on s.id = p.id ${WITH_LAST_JOB}
       where p.before < $5::int
       order by s.created_at desc, s.id desc`,
    [status ?? null, after?.at ?? null, after?.id ?? null, limit, bytes],
    { name: 'list push schedules' },
  );
  const last = rows.at(-1);
  const hasMore = last !== undefined && (rows.length < last.found || last.found === limit);
  return {
    schedules: rows.map(({ found: _, created_us: __, ...schedule }) => schedule),
    next: hasMore ? formatCursor({ at: last.created_us, id: last.id }) : undefined,
  };
}

/** The time by which schedules fire. `instanceTime`: of this instance's clock. */
export async function readScheduleTime(database: Queryable, instanceTime: number): Promise<number> {
  const { rows } = await database.query<{ now: Date }>('select cnapi_schedule_time($1::timestamptz) as now', [
    toTimestamp(instanceTime),
  ]);
  return (rows[0] as { now: Date }).now.getTime();
}

/** What decides when a schedule fires, and what it runs then, with the file of its job. */
export interface FullSchedule {
  id: string;
  at: Date | null;
  cron: string | null;
  time_zone: string;
  overlap: Overlap;
  job: JsonObject;
  job_actor: string | null;
  next_at: Date | null;
  queued_at: Date | null;
  /** How often callers have changed it. */
  changes: number;
  /** Whether the schedule's last job has not ended. */
  is_busy: boolean;
}

export interface DueSchedule extends FullSchedule {
  /** Why the last try to use up this time failed, if it had to wait for the end of other jobs. */
  failure_reason: string | null;
  /** Only for those who may see the job. */
  failure_message: string | null;
  /** The time by which schedules fire. */
  now: Date;
}

/**
 * Schedules whose time has come, the longest first, which only this instance carries out for some
 * seconds. Returns their ids. `instanceTime`: of this instance's clock.
 */
export async function claimDueSchedules(database: Queryable, instanceTime: number, limit: number): Promise<string[]> {
  const { rows } = await database.query<{ id: string }>(
    'select id from cnapi_claim_due_push_schedules($1::timestamptz, $2::int) as id',
    [toTimestamp(instanceTime), limit],
    { name: 'claim due push schedules' },
  );
  return rows.map(({ id }) => id);
}

/** Returns the claimed schedules that still exist, the longest due first. */
export async function readClaimedSchedules(
  database: Queryable,
  instanceTime: number,
  ids: readonly string[],
): Promise<DueSchedule[]> {
  const { rows } = await database.query<DueSchedule>(
    `select s.id, s.at, s.cron, s.time_zone, s.overlap, s.job, s.job_actor, s.next_at, s.queued_at, s.changes,
         s.failure_reason, s.failure_message, cnapi_schedule_time($1::timestamptz) as now, coalesce(j.state, 'ended') <> 'ended' as is_busy
       from cnapi_push_schedules s left join cnapi_push_jobs j on j.id = s.last_job
       where s.id = any ($2::uuid[]) and not s.is_paused
       order by least(s.next_at, s.queued_at), s.id`,
    [toTimestamp(instanceTime), ids],
    { name: 'read claimed push schedules' },
  );
  return rows;
}

/**
 * How long until an instance may carry out a schedule again; null if there is none. `isQueued`: one
 * waits for a job.
 */
export async function readNextTime(
  database: Queryable,
  instanceTime: number,
): Promise<{ inMs: number | null; isQueued: boolean }> {
  const { rows } = await database.query<{ inMs: number | null; isQueued: boolean }>(
    `select ceil(1000 * extract(epoch from min(greatest(s.next_at,
             case when cnapi_is_held_push_schedule(s.held_until, t.now) then s.held_until end)) - min(t.now)))::float8
             as "inMs",
         coalesce(bool_or(s.queued_at is not null), false) as "isQueued"
       from cnapi_schedule_time($1::timestamptz) as t (now)
         join cnapi_push_schedules s on not s.is_paused and least(s.next_at, s.queued_at) is not null`,
    [toTimestamp(instanceTime)],
    { name: 'read next time of push schedules' },
  );
  return rows[0] as { inMs: number | null; isQueued: boolean };
}

/** Stores why the job of the present time has to wait. */
export async function recordFailedTry(
  database: Queryable,
  { id, changes, next_at, queued_at }: AsRead,
  { reason, message }: { reason: string; message: string },
): Promise<void> {
  await database.query(
    `update cnapi_push_schedules s set failure_reason = $4::text, failure_message = $5::text
       where s.id = $1::uuid and s.next_at is not distinct from $2::timestamptz
         and s.queued_at is not distinct from $3::timestamptz and s.changes = $6::int`,
    [id, next_at, queued_at, reason, message, changes],
  );
}

type AsRead = Pick<DueSchedule, 'id' | 'changes' | 'next_at' | 'queued_at'>;

/**
 * The guard of the job of one time, which uses the time up. Not met: another instance was first,
 * the schedule was changed, or the last job has not ended.
 */
export function firingGuard(
  { id, changes, next_at, queued_at }: AsRead,
  { at, thenAt, jobId }: { at: number; thenAt: number | undefined; jobId: string },
): PushJobGuard {
  const condition: StatementPart = (parameters) =>
    `cnapi_fire_push_schedule(${[
      parameters.add(id, 'uuid'),
      parameters.add(changes, 'int'),
      parameters.add(next_at, 'timestamptz'),
      parameters.add(queued_at, 'timestamptz'),
      parameters.add(toTimestamp(at), 'timestamptz'),
      parameters.add(toTimestamp(thenAt), 'timestamptz'),
      parameters.add(jobId, 'uuid'),
    ].join(', ')})`;
  return { name: 'a time has come', condition };
}

export interface UsedTime {
  at: number;
  thenAt: number | undefined;
  /** The time that waits for the end of the last job from now on. */
  queueAt: number | undefined;
  /** What became of the time; undefined while it waits. */
  outcome: FiringOutcome | undefined;
  /** Why, in words that everybody may see. */
  reason: string | undefined;
  /** More, only for those who may see the job. */
  message?: string | undefined;
}

/**
 * A time is used up without a job, or put into the queue. False: another instance was first, or the
 * schedule was changed.
 */
export async function useUpTime(
  database: Queryable,
  { id, changes, next_at, queued_at }: AsRead,
  { at, thenAt, queueAt, outcome, reason, message }: UsedTime,
): Promise<boolean> {
  const { rows } = await database.query<{ is_passed: boolean }>(
    `select cnapi_pass_push_schedule($1::uuid, $10::int, $2::timestamptz, $3::timestamptz, $4::timestamptz,
       $5::timestamptz, $6::timestamptz, $7::text, $8::text, $9::text) as is_passed`,
    [
      ...[id, next_at, queued_at, toTimestamp(at), toTimestamp(thenAt), toTimestamp(queueAt)],
      ...[outcome ?? null, reason ?? null, message ?? null, changes],
    ],
  );
  return rows[0]?.is_passed === true;
}

/** Deletes some schedules that ended more than `days` ago; returns how many. */
export async function deleteEndedSchedules(database: Queryable, days: number, limit: number): Promise<number> {
  const { rowCount } = await database.query(
    `delete from cnapi_push_schedules s
       where s.next_at is null and s.queued_at is null and s.id = any (array(
         select o.id from cnapi_push_schedules o
           where o.next_at is null and o.queued_at is null and o.updated_at < cnapi_now() - $1::int * interval '1 day'
           order by o.updated_at limit $2::int for update skip locked))`,
    [days, limit],
  );
  return rowCount;
}

/**
 * Deletes some jobs of schedules, beyond the `keep` newest of each, if they have ended: at least
 * one, and no more whose nodes together are more than `nodes`. `records`: for the audit, in the
 * same commit. Returns how many. Reads only what it may delete, whatever the schedules have kept.
 */
export async function deleteOldJobs(
  database: Queryable,
  { keep, limit, nodes, records }: { keep: number; limit: number; nodes: number; records?: ExpiryPart | undefined },
): Promise<number> {
  const parameters = new SqlParameters([keep, limit, nodes]);
  const recorded = records === undefined ? '' : `, recorded as (${records(parameters, 'jobs')})`;
  const { rows } = await database.query<{ count: number }>(
    `with oldest as (
       select old.job, old.created_at, old.number, old.nodes from cnapi_push_schedules s
         cross join lateral (
           select f.job, j.created_at, f.number, j.node_count as nodes from cnapi_push_firings f
             join cnapi_push_jobs j on j.id = f.job and (j.state || '') = 'ended'
             where f.schedule = s.id and f.number <= s.fired - $1::int
             order by f.number limit $2::int
         ) as old
         where s.fired > $1::int
         order by old.created_at, old.number, old.job limit $2::int
     ), old as (
       select o.job
         from (
           select s.job, sum(s.nodes) over in_order as nodes, row_number() over in_order as number
             from oldest s window in_order as (order by s.created_at, s.number, s.job)
         ) as o
         where o.number = 1 or o.nodes <= $3::int
     ), locked as (
       select j.id from cnapi_push_jobs j where j.id = any (array(select o.job from old o))
         order by j.id for update skip locked
     ), jobs as (
       delete from cnapi_push_jobs j using locked l where j.id = l.id and (j.state || '') = 'ended'
         returning j.id, ${END_DETAILS} as details
     )${recorded}
     select count(*)::int as count from jobs`,
    parameters.values,
  );
  return (rows[0] as { count: number }).count;
}

/** The time as a parameter of a statement. */
export const toTimestamp = (at: number | undefined): string | null =>
  at === undefined ? null : new Date(at).toISOString();
