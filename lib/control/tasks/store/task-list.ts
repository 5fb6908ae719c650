/** A task as lists over many servers show it: small, whatever its params and its output. Pure. */

import type { Cursor } from '../../../protocol/api/contract/cursor.ts';
import type { ListedTask } from '../../../protocol/api/tasks.ts';
import type { JsonObject } from '../../../protocol/json/bounded-json.ts';
import type { TaskName } from '../../../protocol/task-name.ts';

export interface TaskFilter {
  /** Default: all. */
  status?: ListedTask['status'] | undefined;
  name?: string | undefined;
  actor?: string | undefined;
  serverUuid?: string | undefined;
  /** The beginning of its id, long enough that few ids share it. */
  idPrefix?: string | undefined;
  /** ISO 8601: created at or after this. */
  since?: string | undefined;
  /** ISO 8601: created before this. */
  until?: string | undefined;
  /** Returns the page after the one that ended here. */
  after?: Cursor | undefined;
  limit: number;
}

const MAX_SUMMARY_CHARS = 200;
/** How far the summary looks. */
const MAX_LOOKED_AT = 2_000;

const COMMAND: TaskName = 'command_execute';

/**
 * The beginning of what a task is to do: the words of a command, or the params of any other task.
 */
export function summarizeParams(name: string, params: JsonObject): string {
  const { script, args } = params;
  if (name !== COMMAND || typeof script !== 'string')
    return Object.keys(params).length === 0 ? '' : clipped(textOf(params));
  const words = Array.isArray(args) ? args.slice(0, 100).map((arg) => String(arg).slice(0, MAX_SUMMARY_CHARS)) : [];
  const body = script
    .slice(0, MAX_LOOKED_AT)
    .replace(/^#!.*(\n|$)/, '')
    .trim();
  return clipped(body === 'exec "$@"' ? words.join(' ') : [body, ...words].join(' '));
}

function textOf(params: JsonObject): string {
  const parts: string[] = [];
  let length = 0;
  for (const [name, value] of Object.entries(params)) {
    if (length > MAX_SUMMARY_CHARS) break;
    const part = `${name.slice(0, MAX_SUMMARY_CHARS)}=${shortText(value)}`;
    parts.push(part);
    length += part.length;
  }
  return parts.join(' ');
}

/** Shows an object or a list only as a placeholder: printing it could take as long as it is. */
function shortText(value: unknown): string {
  if (typeof value === 'object' && value !== null) return Array.isArray(value) ? '[…]' : '{…}';
  return String(value).slice(0, MAX_SUMMARY_CHARS);
}

/** Makes one line without control characters. */
function clipped(text: string): string {
  const line = text
    .slice(0, MAX_LOOKED_AT)
    .replace(/[\s\p{C}]+/gu, ' ')
    .trim();
  return line.length <= MAX_SUMMARY_CHARS
    ? line
    : `${line.slice(0, MAX_SUMMARY_CHARS - 1).replace(/[\ud800-\udbff]$/, '')}…`;
}
