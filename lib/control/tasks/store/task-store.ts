/**
 * SQL of the tasks as callers see them: create, read, cancel, list, follow, delete. One function
 * per statement. `ticketed-store.ts` creates a task under a ticket.
 */
import type { Queryable } from '../../../platform/postgres/database.ts';
import { SqlParameters, type StatementPart, statementName } from '../../../platform/postgres/sql-text.ts';
import type { JsonObject } from '../../../protocol/json/bounded-json.ts';
import {
  endError,
  type RecordedTaskEvent,
  type TaskError,
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
  /** Shown to callers in place of `params` if these hold secrets. */
  maskedParams?: JsonObject | undefined;
  timeoutMs: number;
  idempotent: boolean;
  idempotencyKey: string | undefined;
  /** Over everything that identifies the request. */
  requestHash: string;
  requestId: string | undefined;
  /** The actor's name. */
  actor?: string | undefined;
  /** The beginning of what the task is to do, for lists. */
  summary?: string;
  /** A ticket of the waitlist. `createTaskUnderTicket` checks that it is active. */
  ticketUuid?: string | undefined;
  /** A record of who asks for it, written in the same statement. */
  record?: StatementPart | undefined;
}

export interface CreatedTask {
  /** Differs from the proposed id if the idempotency key had created a task before. */
  id: string;
  requestHash: string;
  /** The run that had authority for the server; a hint. */
  run: string | null;
}

export const MAX_QUEUED_PER_SERVER = 10_000;
/** Params of all tasks queued for one server. */
export const MAX_QUEUED_MIB_PER_SERVER = 64;

/** Undefined: the server's queue is full, and the idempotency key, if any, is new. */
export async function createTask(
  database: Queryable,
  task: NewTask,
  maxQueued = MAX_QUEUED_PER_SERVER,
): Promise<CreatedTask | undefined> {
  const parameters = new SqlParameters(taskInsertionValues(task, maxQueued));
  const { rows } = await database.query<CreatedTask>(
    `with ${taskRecord(task, parameters)}${taskInsertion('queue')}
     select made.id, made.request_hash as "requestHash", r.run
       from made left join cnapi_roster_authority r on r.server_uuid = $2::uuid`,
    parameters.values,
    { name: statementName('create task', task.record) },
  );
  return rows[0];
}

/**
 * The parts of a statement that inserts a task: `queue`, the length and bytes of its server's
 * queue, and `made`, the task or the one that its idempotency key had created before. Inserts once
 * for each row of `guard` (a from-list that contains `queue`).
 */
export const taskInsertion = (guard: string): string => `queue as (
       select count(*) as length, coalesce(sum(params_bytes), 0) as bytes
         from (select params_bytes from cnapi_tasks where server_uuid = $2::uuid and state = 'queued' limit $10::int) as queued
     ), made as (
       insert into cnapi_tasks (id, server_uuid, name, params, timeout_ms, idempotent, idempotency_key, request_hash,
           req_id, params_bytes, created_at, queued_at, ticket_uuid, actor, summary, masked_params)
         select $1::uuid, $2::uuid, $3::text, $4::json, $5::int, $6::boolean, $7::text, $8::text, $9::text, octet_length($4::text),
             moment, moment, $11::uuid, $12::text, $13::text, $14::json
           from (select cnapi_now() as moment) as clock, ${guard}
           where queue.length < $10::int and queue.bytes + octet_length($4::text) <= ${MAX_QUEUED_MIB_PER_SERVER * 1024 * 1024}
             or exists (select 1 from cnapi_tasks where server_uuid = $2::uuid and idempotency_key = $7::text)
         on conflict (server_uuid, idempotency_key) where idempotency_key is not null
         do update set idempotency_key = excluded.idempotency_key
         returning id, request_hash
     )`;

/** The task's record as a part of the same statement, if it has one. */
export const taskRecord = ({ record }: NewTask, parameters: SqlParameters): string =>
  record === undefined ? '' : `recorded as (${record(parameters)}), `;

/** `$1` to `$14` of a statement that contains `taskInsertion`. */
export function taskInsertionValues(task: NewTask, maxQueued = MAX_QUEUED_PER_SERVER): unknown[] {
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
    task.actor ?? null,
    task.summary ?? null,
    task.maskedParams === undefined ? null : JSON.stringify(task.maskedParams),
  ];
}

const servedColumns = `id, server_uuid, name, coalesce(masked_params, params) as params, timeout_ms, idempotent, req_id, ticket_uuid, state, outcome, attempt, created_at,
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

/** A task's place in the list of its server. */
export interface ServerTaskCursor {
  id: string;
  /** The creation time as the database prints it, to the microsecond. */
  createdAt: string;
}

export interface TaskChunk {
  rows: TaskRow[];
  /** The last row, where the next part starts; undefined if there are no more. */
  next: ServerTaskCursor | undefined;
}

interface MeasuredRow extends TaskRow {
  placed_at: string;
  total: number;
  bytes: number;
  bytes_before: number;
}

/**
 * Bytes of the wide columns, as they are in memory: 32 MiB can be a few KB when compressed.
 * Uncompressed values are measured without being read.
 */
const LISTED_BYTES = ['result', 'error', 'progress'].reduce(
  (sum, column) => `${sum} + coalesce(case when pg_column_compression(${column}) is null then pg_column_size(${column})
             else octet_length(${column}::text) end, 0)`,
  'params_bytes',
);

/** Newest first, at most `size.rows`. Ends after `size.bytes` of text, but not before one row. */
export async function listTasks(
  database: Queryable,
  serverUuid: string,
  size: { rows: number; bytes: number },
  after?: ServerTaskCursor,
): Promise<TaskChunk> {
  const behind = after === undefined ? '' : 'and (created_at, id) < ($4::timestamptz, $5::uuid)';
  const { rows } = await database.query<MeasuredRow>(
    `select *, created_at::text as placed_at from (
       select *, coalesce(sum(bytes) over (order by created_at desc, id desc rows between unbounded preceding and 1 preceding), 0)
           as bytes_before, count(*) over () as total
       from (select ${servedColumns}, ${LISTED_BYTES} as bytes
           from cnapi_tasks where server_uuid = $1::uuid ${behind}
           order by created_at desc, id desc limit $2::int) part) measured
     where bytes_before < $3::bigint order by created_at desc, id desc`,
    [serverUuid, size.rows, size.bytes, ...(after === undefined ? [] : [after.createdAt, after.id])],
  );
  const last = rows.at(-1);
  const isOver = last === undefined || (rows.length < size.rows && rows.length === last.total);
  return {
    rows: rows.map(({ placed_at: _place, total: _total, bytes: _bytes, bytes_before: _before, ...row }) => row),
    next: isOver ? undefined : { id: last.id, createdAt: last.placed_at },
  };
}

/** The progress of a task, as waits need it. */
export interface TaskPosition {
  id: string;
  isEnded: boolean;
  lastSeq: number;
  /** The whole ended task unless it is large, so waiters need not read again. */
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
  serverUuid: string;
  isEnded: boolean;
  /** The run that had authority for the server; a hint. */
  run: string | null;
}

/**
 * Ends a queued task, or requests the end of a claimed one. Undefined: the task does not exist, has
 * ended, or was posted to a legacy agent, which cannot cancel.
 */
export async function cancelTask(database: Queryable, id: string): Promise<CancelledTask | undefined> {
  const { rows } = await database.query<CancelledTask>(
    `update cnapi_tasks t
       set cancel_requested_at = coalesce(cancel_requested_at, cnapi_now()),
           state = case state when 'queued' then 'ended' else state end,
           outcome = case state when 'queued' then 'failure' end,
           error = case when state <> 'queued' then null when uncertain then $3::json else $2::json end
       where id = $1::uuid and state <> 'ended' and not (state = 'claimed' and posted_by is not null)
       returning t.server_uuid as "serverUuid", t.state = 'ended' as "isEnded",
         (select r.run from cnapi_roster_authority r where r.server_uuid = t.server_uuid) as run`,
    [id, JSON.stringify(taskEnds.cancelled), JSON.stringify(taskEnds.cancelledUncertain)],
  );
  return rows[0];
}

interface EventPage {
  isEnded: boolean;
  events: RecordedTaskEvent[];
}

interface EventRow {
  state: TaskState;
  outcome: TaskOutcome | null;
  result: JsonObject | null;
  error: TaskError | null;
  cancel_requested_at: Date | null;
  seq: number | null;
  name: RecordedTaskEvent['name'];
  attempt: number;
  stored_at: Date;
  reported_at: string | null;
  data: JsonObject | null;
}

/** The first `limit` events after `afterSeq`. Undefined: the task does not exist. */
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

/** The number of each task's last event, by its id. Tasks that do not exist are left out. */
export async function readLastEvents(database: Queryable, ids: readonly string[]): Promise<Map<string, number>> {
  const { rows } = await database.query<{ id: string; seq: number }>(
    'select id, last_seq as seq from cnapi_tasks where id = any ($1::uuid[])',
    [ids],
  );
  return new Map(rows.map(({ id, seq }) => [id, seq]));
}

export interface EventOfTask {
  task: string;
  event: RecordedTaskEvent;
}

/** The events of each task after its `afterSeq`, in their order; at most `most` of each task. */
export async function readEventsOfMany(
  database: Queryable,
  tasks: readonly { id: string; afterSeq: number }[],
  limit: number,
): Promise<EventOfTask[]> {
  const { rows } = await database.query<EventRow & { id: string; seq: number }>(
    `select t.id, t.state, t.cancel_requested_at, e.seq, e.name, e.attempt, e.stored_at, e.reported_at, e.data,
         case when e.name = 'end' then t.outcome end as outcome,
         case when e.name = 'end' then t.result end as result,
         case when e.name = 'end' then t.error end as error
       from unnest($1::uuid[], $2::int[]) as q (id, after_seq)
         join cnapi_tasks t on t.id = q.id
         cross join lateral (
           select * from cnapi_task_events where task_id = t.id and seq > q.after_seq order by seq limit $3::int
         ) as e
       order by t.id, e.seq`,
    [tasks.map(({ id }) => id), tasks.map(({ afterSeq }) => afterSeq), limit],
  );
  return rows.map((row) => ({ task: row.id, event: toEvent(row, row.seq) }));
}

function toEvent(row: EventRow, seq: number): RecordedTaskEvent {
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

/** Limits of one batch: tasks, and pieces of output (except those of the last task). */
interface DeleteBounds {
  tasks: number;
  pieces: number;
}

/**
 * Deletes one batch of tasks that ended more than `days` ago, with their events; returns how many.
 */
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
