/** `cnapi tasks`: lists the tasks of all servers or of one. */

import { Command, Option } from 'commander';
import type { CnapiClient, TaskQuery } from '../../client/client.ts';
import { ApiError } from '../../client/client-errors.ts';
import type { TaskHistoryEntry } from '../../protocol/api/server-tasks.ts';
import type { ListedTask } from '../../protocol/api/tasks.ts';
import { TASK_STATUSES } from '../../protocol/statuses.ts';
import { type CommandRunner, withExamples } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { findServer, serverLabels } from '../lookup/find.ts';
import { WITHHELD } from '../output/task-end.ts';
import { UsageError } from '../terminal/command-errors.ts';
import { parseCount } from '../terminal/count.ts';
import { parseTime } from '../terminal/duration.ts';
import { fleetColumns, historyLine, TASK_COLUMNS, type TaskLine, taskLine } from './task-table.ts';

interface Options {
  limit: string;
  active?: boolean;
  status?: (typeof TASK_STATUSES)[number];
  name?: string;
  actor?: string;
  since?: string;
  until?: string;
}

const MAX_TASKS = 10_000;

export function tasksCommand(runner: CommandRunner): Command {
  const command = new Command('tasks')
    .description('Lists the tasks of all servers, or of one, newest first: command, caller and result.')
    .argument('[server]', 'uuid, the beginning of one, or hostname')
    .option('--limit <count>', `at most this many, up to ${MAX_TASKS}`, '20')
    .option('--active', 'only those that have not ended: the same as --status active')
    .addOption(
      new Option('--status <status>', 'only those with this status; failure includes cancelled and timed_out').choices(
        TASK_STATUSES,
      ),
    )
    .option('--name <name>', 'only those of this kind, such as command_execute')
    .option('--actor <name>', 'only those created by this caller: the name of a token or network')
    .option('--since <time>', 'only from this time on: 2030-01-31T12:00:00Z, or 2h for two hours ago')
    .option('--until <time>', 'only before this time')
    .action(runner.action(tasks));
  return withExamples(command, [
    'cnapi tasks --active',
    'cnapi tasks web-1 --since 1d',
    'cnapi tasks --status failure --json',
  ]);
}

async function tasks(context: Context, [name]: readonly unknown[], options: Options): Promise<void> {
  const { client, output } = context;
  const query = queryOf(context, options);
  const server = name === undefined ? undefined : await findServer(client, String(name));
  const limit = parseCount(options.limit, '--limit', MAX_TASKS);
  if (server !== undefined) {
    const { found, lines } = await readTasks(client, server.uuid, { limit, query });
    if (found.some(({ withheld }) => withheld)) output.note(WITHHELD);
    if (output.json) return output.document(found);
    output.table(TASK_COLUMNS, lines);
    if (lines.length === 0) output.note('The server has no such task');
    return;
  }
  const { tasks, isMore } = await client.firstTasks(query, limit);
  if (tasks.some(({ withheld }) => withheld)) output.note(WITHHELD);
  if (output.json) return output.document(tasks);
  output.table(fleetColumns(await serverLabels(client, tasks)), tasks.map(taskLine));
  if (tasks.length === 0) output.note('There is no such task');
  else if (isMore) output.note(`There are more; --limit shows up to ${MAX_TASKS}`);
}

/** Reads the list of all tasks. An instance of an earlier version has only the server's history. */
export async function readTasks(
  client: CnapiClient,
  serverUuid: string,
  { limit, query = {} }: { limit: number; query?: TaskQuery },
): Promise<{ found: readonly (ListedTask | TaskHistoryEntry)[]; lines: TaskLine[] }> {
  try {
    const { tasks } = await client.firstTasks({ ...query, server_uuid: serverUuid }, limit);
    return { found: tasks, lines: tasks.map(taskLine) };
  } catch (error) {
    const isOlder = error instanceof ApiError && error.code === 'ResourceNotFound';
    if (!isOlder || Object.values(query).some((value) => value !== undefined)) throw error;
    const found = await client.taskHistory(serverUuid, limit);
    return { found, lines: found.map(historyLine) };
  }
}

function queryOf({ clock }: Context, options: Options): TaskQuery {
  const { active = false, status, name, actor, since, until } = options;
  if (active && status !== undefined && status !== 'active')
    throw new UsageError('--active cannot be combined with another --status');
  const time = (text: string | undefined, option: string) => text && parseTime(text, option, clock.wallTime());
  return {
    status: active ? 'active' : status,
    name,
    actor,
    since: time(since, '--since'),
    until: time(until, '--until'),
  };
}
