/**
 * SQL of the deadlines of tasks, counted in ticks (`deadline-counter.ts`): the counter, cancels of
 * overdue tasks, and the end of tasks that no agent takes or reports.
 */
import type { Queryable } from '../../../platform/postgres/database.ts';
import type { ClaimingSession } from '../store/change-result.ts';
import { taskEnds } from '../store/task.ts';
import {
  MAX_CLAIMED_PER_SERVER,
  MAX_HELD_BYTES,
  MAX_POSTS_OF_SERVER,
  MAX_UNACCEPTED_BYTES,
} from '../store/task-limits.ts';
import { TICK_MS, type TickAdvance, toTicks } from './deadline-counter.ts';

const MAX_SWEPT_AT_ONCE = 500;
const MAX_CANCELS_PER_SERVER = 100;
const MAX_CANCELS_AT_ONCE = 5_000;

/** Advances the counter unless another instance did so first. Returns its value. */
export async function advanceTicks(database: Queryable, { seen, by }: TickAdvance): Promise<number> {
  const { rows } = await database.query<{ tick: number }>('select cnapi_advance_ticks($1::bigint, $2::int) as tick', [
    seen,
    by,
  ]);
  return (rows[0] as { tick: number }).tick;
}

/** An attempt for which a cancel must be sent to its agent. */
export interface OverdueTask {
  id: string;
  serverUuid: string;
  attempt: number;
}

/**
 * Returns some tasks of these sessions that are past their timeout by `overdueMs`; those whose
 * cancel was sent longest ago come first. Returns a task again after `resendMs`, or immediately if
 * the database's clock was set back.
 */
export async function takeOverdue(
  database: Queryable,
  sessions: readonly ClaimingSession[],
  { overdueMs, resendMs }: { overdueMs: number; resendMs: number },
): Promise<OverdueTask[]> {
  const { rows } = await database.query<OverdueTask>(
    `update cnapi_tasks t set cancel_sent_at = cnapi_now()
       where t.id = any (array(
         select t.id from cnapi_tasks t
           where (t.state || '') = 'claimed' and t.worked_tick < cnapi_tick() - ceil(t.timeout_ms / ${TICK_MS}.0) - $3::bigint
             and t.id = any (array(
             select due.id from unnest($1::uuid[], $2::bigint[]) as mine (server_uuid, epoch)
               cross join lateral (
                 select d.id, d.cancel_sent_at from cnapi_tasks d
                   where d.server_uuid = mine.server_uuid and d.epoch = mine.epoch and d.state = 'claimed'
                     and d.worked_tick < cnapi_tick() - ceil(d.timeout_ms / ${TICK_MS}.0) - $3::bigint
                     and (d.cancel_sent_at is null or d.cancel_sent_at > cnapi_now()
                       or d.cancel_sent_at < cnapi_now() - $4::int * interval '1 ms')
                   order by d.cancel_sent_at nulls first, d.id limit $5::int
               ) as due
               order by due.cancel_sent_at nulls first, due.id limit $6::int))
           for update skip locked))
       returning t.id, t.server_uuid as "serverUuid", t.attempt`,
    [
      sessions.map((session) => session.serverUuid),
      sessions.map((session) => session.epoch),
      toTicks(overdueMs),
      resendMs,
      MAX_CANCELS_PER_SERVER,
      MAX_CANCELS_AT_ONCE,
    ],
  );
  return rows;
}

/** The queues of these servers are full; the time to start of their tasks begins anew. */
export async function recordFullServers(database: Queryable, serverUuids: readonly string[]): Promise<void> {
  await database.query('select cnapi_record_full_servers($1::uuid[])', [serverUuids]);
}

export interface SweepOptions {
  /** Undefined: not yet. */
  startByMs: number | undefined;
  overdueMs: number | undefined;
  /** Whether this instance could post more tasks to legacy agents. */
  hasRoomForPosts?: boolean;
}

/**
 * Ends some tasks that no agent takes or will report; returns their ids. Call it again until it
 * returns none.
 */
export async function sweepTasks(
  database: Queryable,
  { startByMs, overdueMs, hasRoomForPosts = true }: SweepOptions,
  limit = MAX_SWEPT_AT_ONCE,
): Promise<string[]> {
  const { rows } = await database.query<{ id: string }>(
    `select cnapi_sweep_late_tasks($1::bigint, $2::bigint, $3::text, $4::text, $5::text, $6::int, $7::int, $8::bigint,
       $9::bigint, $10::int, $11::bigint, $12::boolean) as id`,
    [
      startByMs === undefined ? null : toTicks(startByMs),
      overdueMs === undefined ? null : toTicks(overdueMs),
      JSON.stringify(taskEnds.notTaken),
      JSON.stringify(taskEnds.notTakenAgain),
      JSON.stringify(taskEnds.timedOut),
      limit,
      MAX_CLAIMED_PER_SERVER,
      MAX_UNACCEPTED_BYTES,
      MAX_HELD_BYTES,
      MAX_POSTS_OF_SERVER.posts,
      MAX_POSTS_OF_SERVER.bytes,
      hasRoomForPosts,
    ],
  );
  return rows.map((row) => row.id);
}
