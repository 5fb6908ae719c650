/**
 * Tasks as a caller may see them, like Triton's (docs/compatibility.md). A task's params
 * (environment included), output, result and messages may hold anything that a command received or
 * printed. So only callers with the right `task-contents` see them. Every reader sees which task
 * ran where, when, its progress, its exit code and the code of its error; `withheld` marks that
 * more exists. Pure.
 */

import { definedFields } from '../../../platform/defined-fields.ts';
import type { TaskHistoryEntry } from '../../../protocol/api/server-tasks.ts';
import type { ListedTask, Task } from '../../../protocol/api/tasks.ts';
import { isJsonObject, type JsonObject } from '../../../protocol/json/bounded-json.ts';
import { maskParams } from '../../../protocol/secret-params.ts';
import { type Actor, hasRight } from '../../access/token.ts';
import { endError, type RecordedTaskEvent, type TaskRow } from '../store/task.ts';
import type { ListedTaskRow } from '../store/task-list-store.ts';

type Withheld<Value> = Value | (Value & { withheld: true });

/**
 * One entry of `GET /servers/:uuid/task-history`, with Triton's agent's keys and the task's
 * id.
 */
interface ServerTaskHistoryEntry {
  id: string;
  task: string;
  params: JsonObject;
  status: 'active' | 'finished' | 'failed';
  started_at: string;
  finished_at?: string;
  errorCount: number;
  messages: string[];
  log: string[];
}

export function toTask(row: TaskRow, actor: Actor): Withheld<Task> {
  const task = wholeTask(row);
  if (hasRight(actor, 'task-contents')) return task;
  const history = task.history.map((entry) => ({ ...entry, event: outlineOf(entry.event) }));
  return { ...task, params: {}, history, withheld: true };
}

/** A task as a page of tasks shows it; `summary` is the beginning of the task's input. */
export function toListedTask(row: ListedTaskRow, actor: Actor): Withheld<ListedTask> {
  const { outcome, started_at, ended_at, error_code, summary, exit_code } = row;
  const task = {
    id: row.id,
    server_uuid: row.server_uuid,
    task: row.name,
    status: outcome ?? ('active' as const),
    actor: row.actor,
    timestamp: row.created_at.toISOString(),
    ...definedFields({ started_at: started_at?.toISOString(), finished_at: ended_at?.toISOString() }),
    attempt: row.attempt,
    cancel_requested: row.cancel_requested,
    ...definedFields({ error_code: outcome === 'failure' ? error_code : null, exit_code }),
  };
  return hasRight(actor, 'task-contents') ? { ...task, ...definedFields({ summary }) } : { ...task, withheld: true };
}

export function toTaskHistoryEntry(row: TaskRow, actor: Actor): TaskHistoryEntry {
  return shownEntry(wholeHistoryEntry(row), actor);
}

/** An entry of a legacy agent's own history, which is passed on as it is. */
export function toLegacyHistoryEntry(entry: unknown, actor: Actor): TaskHistoryEntry {
  return shownEntry(entry, actor);
}

export function toTaskEvent(event: RecordedTaskEvent, actor: Actor): Withheld<RecordedTaskEvent> {
  if (hasRight(actor, 'task-contents')) return event;
  // The reason of a retry is our own text.
  if (event.name === 'retry' || Object.keys(event.data).length === 0) return event;
  return { ...event, data: outlineOf(event.data), withheld: true };
}

function wholeTask(row: TaskRow): Task {
  return {
    id: row.id,
    ...(row.req_id === null ? {} : { req_id: row.req_id }),
    task: row.name,
    server_uuid: row.server_uuid,
    status: row.outcome ?? 'active',
    timestamp: row.created_at.toISOString(),
    history: historyOf(row),
    params: row.params,
    attempt: row.attempt,
    timeout_ms: row.timeout_ms,
    idempotent: row.idempotent,
    cancel_requested: row.cancel_requested_at !== null,
    ...(row.ticket_uuid === null ? {} : { ticket_uuid: row.ticket_uuid }),
    ...(row.started_at === null ? {} : { started_at: row.started_at.toISOString() }),
    ...(row.ended_at === null ? {} : { finished_at: row.ended_at.toISOString() }),
  };
}

/**
 * The history of an ended task is exactly what Triton's CNAPI keeps. Before the end it shows the
 * progress.
 */
function historyOf(row: TaskRow): Task['history'] {
  if (row.ended_at !== null) return endHistory(row, row.ended_at.toISOString());
  const steps: [string, Date | null, JsonObject][] = [
    ['accepted', row.accepted_at, {}],
    ['started', row.started_at, {}],
    ['progress', row.progress_at, { ...row.progress }],
  ];
  return steps.flatMap(([name, at, event]) => (at === null ? [] : [{ name, timestamp: at.toISOString(), event }]));
}

function endHistory(row: TaskRow, timestamp: string): Task['history'] {
  if (row.outcome === 'complete') return [{ name: 'finish', timestamp, event: row.result ?? {} }];
  const { code, message } = endError(row) ?? { code: 'Failed', message: 'no error given' };
  return [
    { name: 'error', timestamp, event: { error: { message, code } } },
    { name: 'finish', timestamp, event: row.result ?? {} },
  ];
}

function wholeHistoryEntry(row: TaskRow): ServerTaskHistoryEntry {
  const error = row.outcome === 'failure' ? endError(row) : null;
  return {
    id: row.id,
    task: row.name,
    params: row.params,
    status: row.outcome === null ? 'active' : row.outcome === 'complete' ? 'finished' : 'failed',
    started_at: (row.started_at ?? row.created_at).toISOString(),
    ...(row.ended_at === null ? {} : { finished_at: row.ended_at.toISOString() }),
    errorCount: row.outcome === 'failure' ? 1 : 0,
    messages: error === null ? [] : [error.message],
    log: [],
  };
}

function shownEntry(entry: unknown, actor: Actor): TaskHistoryEntry {
  if (hasRight(actor, 'task-contents')) return withoutSecrets(entry) as TaskHistoryEntry;
  return (isJsonObject(entry) ? { ...plainPartsOf(entry), withheld: true } : {}) as TaskHistoryEntry;
}

/** A legacy agent keeps the params of its tasks unchanged. */
function withoutSecrets(entry: unknown): unknown {
  return isJsonObject(entry) && isJsonObject(entry.params) ? { ...entry, params: maskParams(entry.params) } : entry;
}

const SHOWN_OF_ENTRY = [
  'id',
  'task',
  'pid',
  'status',
  'started_at',
  'finished_at',
  'errorCount',
] as const satisfies readonly (keyof ServerTaskHistoryEntry | 'pid')[];

/** Keeps the lists, because clients expect them. */
function plainPartsOf(entry: JsonObject): JsonObject {
  const shown = SHOWN_OF_ENTRY.flatMap((key) => (isPlain(entry[key]) ? [[key, entry[key]]] : []));
  return { ...Object.fromEntries(shown), params: {}, messages: [], log: [] };
}

/** Only numbers and codes, which a task cannot fill with other content. */
function outlineOf({ exitCode, signal, value, status, error, result }: JsonObject): JsonObject {
  return {
    ...(typeof exitCode === 'number' || exitCode === null ? { exitCode } : {}),
    ...(isWord(signal) ? { signal } : {}),
    ...(typeof value === 'number' ? { value } : {}),
    ...(isWord(status) ? { status } : {}),
    ...(isJsonObject(error)
      ? { error: { message: 'withheld', ...(isWord(error.code) ? { code: error.code } : {}) } }
      : {}),
    ...(isJsonObject(result) ? { result: outlineOf(result) } : {}),
  };
}

const isWord = (value: unknown): value is string => typeof value === 'string' && /^\w{1,64}$/.test(value);

const isPlain = (value: unknown): boolean =>
  typeof value === 'number' || (typeof value === 'string' && value.length <= 200);
