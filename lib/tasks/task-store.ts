/**
 * SQL of the tasks as callers see them: create, read, cancel, list, follow, delete. One function per statement. A task
 * under a ticket is created in `ticketed-store.ts`.
 */
import type { Queryable } from '../moray/database.ts';
import {
  endError,
  type JsonObject,
  type TaskError,
  type TaskEvent,
  type TaskOutcome,
  type TaskRow,
  type TaskState,
  taskEnds,
} from './task.ts';

export interface NewTask {
  id: string;
  serverUuid: string;
  name: string;
  params: JsonObject;
  timeoutMs: number;
  idempotent: boolean;
  idempotencyKey: string | undefined;
  /** Of all that makes the request what it is. */
  requestHash: string;
  requestId: string | undefined;
  /** Of the waitlist; whether it is active is `createTaskUnderTicket`'s to ask. */
  ticketUuid?: string | undefined;
}

export interface CreatedTask {
  /** Another than the one proposed when the idempotency key had brought a task before. */
  id: string;
  requestHash: string;
  /** The run that had authority for the server; a hint. */
  run: string | null;
}

const MAX_QUEUED_PER_SERVER = 10_000;

/** Undefined: the server's queue is full, and the idempotency key, if any, is new. */
export async function createTask(
  database: Queryable,
  task: NewTask,
  maxQueued = MAX_QUEUED_PER_SERVER,
): Promise<CreatedTask | undefined> {
  const { rows } = await database.query<CreatedTask>(
    `with ${creation('queue')}
     select made.id, made.request_hash as "requestHash", r.run
       from made left join cnapi_roster_authority r on r.server_uuid = $2::uuid`,
    creationValues(task, maxQueued),
    { name: 'create task' },
  );
  return rows[0];
}

/**
 * The parts of a statement that inserts a task: `queue`, the length of its server's, and `made`, the task or the one that
 * its idempotency key had brought before. Inserts once for each row of `guard` (a from-list with `queue` in it).
 */
export const creation = (guard: string): string => `queue as (
       select count(*) as length
         from (select 1 from cnapi_tasks where server_uuid = $2::uuid and state = 'queued' limit $10::int) as queued
     ), made as (
       insert into cnapi_tasks (id, server_uuid, name, params, timeout_ms, idempotent, idempotency_key, request_hash,
           req_id, params_bytes, created_at, queued_at, ticket_uuid)
         select $1::uuid, $2::uuid, $3::text, $4::json, $5::int, $6::boolean, $7::text, $8::text, $9::text, octet_length($4::text),
             moment, moment, $11::uuid
           from (select cnapi_now() as moment) as clock, ${guard}
           where queue.length < $10::int
             or exists (select 1 from cnapi_tasks where server_uuid = $2::uuid and idempotency_key = $7::text)
         on conflict (server_uuid, idempotency_key) where idempotency_key is not null
         do update set idempotency_key = excluded.idempotency_key
         returning id, request_hash
     )`;

/** `$1` to `$11` of a statement with `creation` in it. */
export function creationValues(task: NewTask, maxQueued = MAX_QUEUED_PER_SERVER): unknown[] {
  return [
    task.id,
    task.serverUuid,
    task.name,
    JSON.stringify(task.params),
    task.timeoutMs,
    task.idempotent,
    task.idempotencyKey ?? null,
    task.requestHash,
    task.requestId ?? null,
    maxQueued,
    task.ticketUuid ?? null,
  ];
}

const servedColumns = `id, server_uuid, name, params, timeout_ms, idempotent, req_id, ticket_uuid, state, outcome, attempt, created_at,
  accepted_at, started_at, cancel_requested_at, ended_at, progress, progress_at, result, error`;

export async function readTask(database: Queryable, id: string): Promise<TaskRow | undefined> {
  const { rows } = await database.query<TaskRow>(`select ${servedColumns} from cnapi_tasks where id = $1::uuid`, [id], {
    name: 'read task',
  });
  return rows[0];
}

export async function readTaskByKey(
  database: Queryable,
  serverUuid: string,
  idempotencyKey: string,
): Promise<{ id: string; requestHash: string } | undefined> {
  const { rows } = await database.query<{ id: string; requestHash: string }>(
    `select id, request_hash as "requestHash" from cnapi_tasks
       where server_uuid = $1::uuid and idempotency_key = $2::text`,
    [serverUuid, idempotencyKey],
  );
  return rows[0];
}

/** Newest first. */
export async function listTasks(database: Queryable, serverUuid: string, limit: number): Promise<TaskRow[]> {
  const { rows } = await database.query<TaskRow>(
    `select ${servedColumns} from cnapi_tasks where server_uuid = $1::uuid
       order by created_at desc, id desc limit $2::int`,
    [serverUuid, limit],
  );
  return rows;
}

/** How far a task has come, as waits need it. */
export interface TaskPosition {
  id: string;
  isEnded: boolean;
  lastSeq: number;
  /** All of an ended task, unless it is a large one, so that whoever waited for it need not read again. */
  row: TaskRow | undefined;
}

const SMALL_TASK_BYTES = 4096;

export async function readPositions(database: Queryable, ids: readonly string[]): Promise<TaskPosition[]> {
  const { rows } = await database.query<TaskRow & { watchedId: string; isEnded: boolean; lastSeq: number }>(
    `select q.id as "watchedId", q.state = 'ended' as "isEnded", q.last_seq as "lastSeq", small.*
       from cnapi_tasks q
         left join lateral (select ${servedColumns}) as small on q.state = 'ended' and
           q.params_bytes + coalesce(octet_length(q.result::text), 0) + coalesce(octet_length(q.error::text), 0)
             + coalesce(octet_length(q.progress::text), 0) <= $2::int
       where q.id = any ($1::uuid[])`,
    [ids, SMALL_TASK_BYTES],
    { name: 'read task positions' },
  );
  return rows.map(({ watchedId: id, isEnded, lastSeq, ...row }) => {
    return { id, isEnded, lastSeq, row: row.id === null ? undefined : row };
  });
}

export interface CancelledTask {
  row: TaskRow;
  /** The run that had authority for the server; a hint. */
  run: string | null;
}

/**
 * A queued task ends, of a claimed one the end is asked for. Undefined: there is none, or it has ended, or an old agent
 * has it, which nobody can ask.
 */
export async function cancelTask(database: Queryable, id: string): Promise<CancelledTask | undefined> {
  const { rows } = await database.query<TaskRow & { run: string | null }>(
    `update cnapi_tasks t
       set cancel_requested_at = coalesce(cancel_requested_at, cnapi_now()),
           state = case state when 'queued' then 'ended' else state end,
           outcome = case state when 'queued' then 'failure' end,
           error = case when state <> 'queued' then null when uncertain then $3::json else $2::json end
       where id = $1::uuid and state <> 'ended' and not (state = 'claimed' and posted_by is not null)
       returning ${servedColumns}, (select r.run from cnapi_roster_authority r where r.server_uuid = t.server_uuid) as run`,
    [id, JSON.stringify(taskEnds.cancelled), JSON.stringify(taskEnds.cancelledUncertain)],
  );
  const row = rows[0];
  return row === undefined ? undefined : { row, run: row.run };
}

export interface EventPage {
  isEnded: boolean;
  events: TaskEvent[];
}

interface EventRow {
  state: TaskState;
  outcome: TaskOutcome | null;
  result: JsonObject | null;
  error: TaskError | null;
  cancel_requested_at: Date | null;
  seq: number | null;
  name: TaskEvent['name'];
  attempt: number;
  stored_at: Date;
  reported_at: string | null;
  data: JsonObject | null;
}

/** The first `limit` events after `afterSeq`. Undefined: there is no such task. */
export async function readEvents(
  database: Queryable,
  id: string,
  { afterSeq, limit }: { afterSeq: number; limit: number },
): Promise<EventPage | undefined> {
  const { rows } = await database.query<EventRow>(
    `select t.state, t.cancel_requested_at, e.seq, e.name, e.attempt, e.stored_at, e.reported_at, e.data,
         case when e.name = 'end' then t.outcome end as outcome,
         case when e.name = 'end' then t.result end as result,
         case when e.name = 'end' then t.error end as error
       from cnapi_tasks t
         left join lateral (
           select * from cnapi_task_events where task_id = t.id and seq > $2::int order by seq limit $3::int
         ) e on true
       where t.id = $1::uuid
       order by e.seq`,
    [id, afterSeq, limit],
  );
  const first = rows[0];
  if (first === undefined) return undefined;
  return {
    isEnded: first.state === 'ended',
    events: rows.flatMap((row) => (row.seq === null ? [] : [toEvent(row, row.seq)])),
  };
}

function toEvent(row: EventRow, seq: number): TaskEvent {
  return {
    seq,
    name: row.name,
    attempt: row.attempt,
    timestamp: row.stored_at.toISOString(),
    ...(row.reported_at === null ? {} : { reported_at: row.reported_at }),
    data: row.name === 'end' ? endData(row) : (row.data ?? {}),
  };
}

function endData(row: EventRow): JsonObject {
  const error = endError(row);
  return {
    status: row.outcome,
    ...(row.result === null ? {} : { result: row.result }),
    ...(error === null ? {} : { error }),
  };
}

/** Most tasks, and most pieces of output but for the last task's, that one batch deletes. */
export interface DeleteBounds {
  tasks: number;
  pieces: number;
}

/** Deletes one batch of those that ended more than `days` ago, with their events; returns how many. */
export async function deleteTasks(database: Queryable, days: number, bounds: DeleteBounds): Promise<number> {
  const { rowCount } = await database.query(
    `delete from cnapi_tasks where id = any (array(
       select id from cnapi_tasks where state = 'ended' and id = any (array(
         select old.id from (
           select id, sum(kept_events) over (order by ended_at, id) - kept_events as pieces_before
             from (
               select id, ended_at, kept_events from cnapi_tasks
                 where state = 'ended' and ended_at < cnapi_now() - $1::int * interval '1 day'
                 order by ended_at, id limit $2::int
             ) as oldest
         ) as old where old.pieces_before <= $3::int))
         for update skip locked))`,
    [days, bounds.tasks, bounds.pieces],
  );
  return rowCount;
}
