/**
 * SQL of lists over all servers' tasks. Bounded in the rows that it reads, not only in those that
 * it returns: if few tasks match the filter, a page ends early and says where the next one starts.
 * Reads only narrow columns, because params and results may be megabytes.
 */
import type { Queryable } from '../../../platform/postgres/database.ts';
import { fromMicroseconds, inMicroseconds } from '../../../platform/postgres/sql-text.ts';
import { type Cursor, formatCursor } from '../../../protocol/api/contract/cursor.ts';
import { idRangeOf } from '../../../protocol/api/contract/id-prefix.ts';
import type { TaskOutcome, TaskState } from './task.ts';
import type { TaskFilter } from './task-list.ts';

/** The columns of a task that lists show. */
export interface ListedTaskRow {
  id: string;
  server_uuid: string;
  name: string;
  state: TaskState;
  outcome: TaskOutcome | null;
  actor: string | null;
  at: string;
  created_at: Date;
  started_at: Date | null;
  ended_at: Date | null;
  attempt: number;
  cancel_requested: boolean;
  error_code: string | null;
  summary: string | null;
  exit_code: number | null;
}

export interface TaskListPage {
  rows: ListedTaskRow[];
  /** Where the next page starts; undefined after the last one. */
  next: string | undefined;
}

/** Rows read for one page. */
const MAX_LOOKED_AT = 10_000;

const AT = `${inMicroseconds('created_at')} as at`;
const NEWEST_FIRST = 'order by created_at desc, id desc';

/** Newest first. */
export async function listAllTasks(
  database: Queryable,
  filter: TaskFilter,
  maxLookedAt = MAX_LOOKED_AT,
): Promise<TaskListPage> {
  const range = rangeOf(filter);
  const { conditions, values } = filterConditions(filter, [...range.values]);
  const limits = [values.push(maxLookedAt), values.push(filter.limit)];
  const { rows } = await database.query<ListedTaskRow>(
    `select id, server_uuid, name, state, outcome, actor, at, created_at, started_at, ended_at, attempt, cancel_requested,
         error_code, summary, exit_code
       from (select *, ${AT}, cancel_requested_at is not null as cancel_requested,
           substring(left(error::text, 300) from '"code":"([A-Za-z0-9_.-]{1,100})"') as error_code
         from cnapi_tasks ${where(range.conditions)} ${NEWEST_FIRST} limit $${limits[0]}::int) as looked_at
       ${where(conditions)} ${NEWEST_FIRST} limit $${limits[1]}::int`,
    values,
  );
  const last = rows.length === filter.limit ? rows.at(-1) : await lastLookedAt(database, range, maxLookedAt);
  return { rows, next: last && formatCursor(last) };
}

/** Undefined if the bound on rows was not reached. */
async function lastLookedAt(
  database: Queryable,
  { conditions, values }: Conditions,
  maxLookedAt: number,
): Promise<Cursor | undefined> {
  const { rows } = await database.query<Cursor>(
    `select ${AT}, id from cnapi_tasks ${where(conditions)} ${NEWEST_FIRST} offset $${values.length + 1}::int limit 1`,
    [...values, maxLookedAt - 1],
  );
  return rows[0];
}

/**
 * Returns how long each ended task waited for its start, and how long it ran, in seconds. Null for
 * a task that never started.
 */
export async function readTaskTimes(
  database: Queryable,
  ids: readonly string[],
): Promise<{ wait: number | null; run: number | null }[]> {
  const { rows } = await database.query<{ wait: number | null; run: number | null }>(
    `select extract(epoch from started_at - created_at)::float8 as wait, extract(epoch from ended_at - started_at)::float8 as run
       from cnapi_tasks where id = any ($1::uuid[]) and state = 'ended'`,
    [ids],
    { name: 'read task times' },
  );
  return rows;
}

interface Conditions {
  conditions: string[];
  values: unknown[];
}

/** The conditions that an index can answer. */
function rangeOf({ status, serverUuid, idPrefix, since, until, after }: TaskFilter): Conditions {
  const values: unknown[] = [];
  const conditions = status === 'active' ? [`(state || '') <> 'ended'`] : [];
  if (serverUuid !== undefined) conditions.push(`server_uuid = $${values.push(serverUuid)}::uuid`);
  const ids = idPrefix === undefined ? undefined : idRangeOf(idPrefix);
  if (ids !== undefined)
    conditions.push(`id between $${values.push(ids.first)}::uuid and $${values.push(ids.last)}::uuid`);
  if (since !== undefined) conditions.push(`created_at >= $${values.push(since)}::timestamptz`);
  if (until !== undefined) conditions.push(`created_at < $${values.push(until)}::timestamptz`);
  if (after !== undefined) {
    const at = fromMicroseconds(`$${values.push(after.at)}::bigint`);
    conditions.push(`(created_at, id) < (${at}, $${values.push(after.id)}::uuid)`);
  }
  return { conditions, values };
}

/** The conditions that are checked on each row. */
function filterConditions({ status, name, actor }: TaskFilter, values: unknown[]): Conditions {
  const conditions: string[] = [];
  if (status === 'complete' || status === 'failure') conditions.push(`outcome = $${values.push(status)}::text`);
  if (name !== undefined) conditions.push(`name = $${values.push(name)}::text`);
  if (actor !== undefined) conditions.push(`actor = $${values.push(actor)}::text`);
  return { conditions, values };
}

const where = (conditions: readonly string[]): string =>
  conditions.length === 0 ? '' : `where ${conditions.join(' and ')}`;

/** How many tasks of this server have not ended; counts no further than 1,000. */
export async function countUnfinishedTasks(database: Queryable, serverUuid: string): Promise<number> {
  const { rows } = await database.query<{ count: number }>(
    `select count(*)::int as count from (
       (select from cnapi_tasks where server_uuid = $1::uuid and state = 'queued' limit 1000)
       union all (select from cnapi_tasks where server_uuid = $1::uuid and state = 'claimed' limit 1000)) as unfinished`,
    [serverUuid],
    { name: 'count unfinished tasks' },
  );
  return rows[0]?.count ?? 0;
}

/** Returns the servers that have an unfinished task. */
export async function readBusyAmong(database: Queryable, serverUuids: readonly string[]): Promise<string[]> {
  const { rows } = await database.query<{ server_uuid: string }>(
    `select s.server_uuid from unnest($1::uuid[]) as s(server_uuid)
       where exists (select from cnapi_tasks q where q.server_uuid = s.server_uuid and q.state = 'queued')
         or exists (select from cnapi_tasks q where q.server_uuid = s.server_uuid and q.state = 'claimed')`,
    [serverUuids],
    { name: 'read busy servers among' },
  );
  return rows.map(({ server_uuid }) => server_uuid);
}

/** Returns the tasks that have ended, or whose record was deleted. */
export async function readEndedAmong(database: Queryable, ids: readonly string[]): Promise<string[]> {
  const { rows } = await database.query<{ id: string }>(
    `select one.id from unnest($1::uuid[]) as one(id)
       where not exists (select from cnapi_tasks q where q.id = one.id and q.state <> 'ended')`,
    [ids],
    { name: 'read ended tasks among' },
  );
  return rows.map(({ id }) => id);
}
