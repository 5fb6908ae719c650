/**
 * The part of a task that a caller may see. Its params (environment included), output, result and
 * messages may hold anything that a command received or printed. So only callers with the right
 * `task-contents` see them. Every reader sees which task ran where, when, its progress, its exit
 * code and the code of its error; `withheld` marks that more exists. Pure.
 */

import type { TaskHistoryEntry } from '../../../protocol/api/server-tasks.ts';
import type { ListedTask, Task } from '../../../protocol/api/tasks.ts';
import { isJsonObject, type JsonObject } from '../../../protocol/bounded-json.ts';
import { maskParams } from '../../../protocol/secret-params.ts';
import { type Actor, hasRight } from '../../access/token.ts';
import type { RecordedTaskEvent, ServerTaskHistoryEntry } from '../record/task.ts';

type Withheld<Value> = Value | (Value & { withheld: true });

export function taskFor(actor: Actor, task: Task): Withheld<Task> {
  if (hasRight(actor, 'task-contents')) return task;
  const history = task.history.map((entry) => ({ ...entry, event: outlineOf(entry.event) }));
  return { ...task, params: {}, history, withheld: true };
}

/** For a page of tasks; `summary` is the beginning of the task's input. */
export function listedFor(actor: Actor, task: ListedTask): Withheld<ListedTask> {
  if (hasRight(actor, 'task-contents')) return task;
  const { summary: _given, ...rest } = task;
  return { ...rest, withheld: true };
}

/** For our own tasks, and for the history of a legacy agent. */
export function historyFor(actor: Actor, entries: readonly unknown[]): TaskHistoryEntry[] {
  const shown = hasRight(actor, 'task-contents')
    ? entries.map(withoutSecrets)
    : entries.map((entry) => (isJsonObject(entry) ? { ...plainPartsOf(entry), withheld: true } : {}));
  // A legacy agent's entries are passed on as they are.
  return shown as TaskHistoryEntry[];
}

export function eventFor(actor: Actor, event: RecordedTaskEvent): Withheld<RecordedTaskEvent> {
  if (hasRight(actor, 'task-contents')) return event;
  // The reason of a retry is our own text.
  if (event.name === 'retry' || Object.keys(event.data).length === 0) return event;
  return { ...event, data: outlineOf(event.data), withheld: true };
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
