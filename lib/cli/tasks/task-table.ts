/**
 * A table of tasks: one line each, with what it ran and how that ended, if the caller may see it.
 * Pure.
 */
import type { TaskHistoryEntry } from '../../protocol/api/server-tasks.ts';
import type { ListedTask } from '../../protocol/api/tasks.ts';
import { shownStatus } from '../output/task-end.ts';
import { shortTime } from '../terminal/duration.ts';
import type { Column } from '../terminal/table.ts';

export interface TaskLine {
  id: string | undefined;
  task: string;
  status: string;
  created: string | undefined;
  serverUuid?: string;
  actor?: string | null | undefined;
  /** What the task ran. */
  summary?: string | undefined;
  /** The exit code, or why the task failed if its status does not say it. */
  end?: string | number | undefined;
}

export const TASK_COLUMNS: readonly Column<TaskLine>[] = [
  { head: 'CREATED', of: ({ created }) => shortTime(created), optional: true },
  { head: 'TASK', of: ({ task }) => task, shrinks: true },
  { head: 'STATUS', of: ({ status }) => status },
  { head: 'EXIT', of: ({ end }) => end, shrinks: true },
  { head: 'ID', of: ({ id }) => id, abbreviates: true },
  { head: 'WHAT', of: ({ summary }) => summary, shrinks: true },
];

/** The columns for tasks of several servers. `labelOf` returns the name of a server for people. */
export function fleetColumns(labelOf: (uuid: string) => string): readonly Column<TaskLine>[] {
  const server = { head: 'SERVER', of: ({ serverUuid }: TaskLine) => labelOf(serverUuid ?? ''), shrinks: true };
  const actor = { head: 'ACTOR', of: (line: TaskLine) => line.actor, shrinks: true, optional: true } as const;
  const [created, task, status, end, id, what] = TASK_COLUMNS as [...typeof TASK_COLUMNS] & Column<TaskLine>[];
  return [created, task, status, end, server, actor, id, what].filter((column) => column !== undefined);
}

export function taskLine(listed: ListedTask): TaskLine {
  const { id, task, status, timestamp, server_uuid, actor, summary, exit_code, error_code } = listed;
  const shown = shownStatus(status, error_code);
  return {
    id,
    task,
    status: shown,
    created: timestamp,
    serverUuid: server_uuid,
    actor,
    summary,
    end: exit_code ?? (shown === status ? error_code : undefined),
  };
}

/** A line from the history of an instance of an earlier version, or of a legacy agent. */
export function historyLine({ id, task, status, started_at, messages }: TaskHistoryEntry): TaskLine {
  return {
    id,
    task,
    status: STATUS_OF_HISTORY[status] ?? status,
    created: started_at,
    end: messages?.map(String).join('; '),
  };
}

/** Triton's words in the history, and ours with the same meaning. */
const STATUS_OF_HISTORY: Readonly<Record<string, string>> = { finished: 'complete', failed: 'failure' };
