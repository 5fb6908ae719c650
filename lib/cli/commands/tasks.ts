/** `cnapi tasks`: a server's tasks. */
import { Command } from 'commander';
import type { Context } from '../context.ts';
import { findServer } from '../find.ts';
import { examples, type Runner } from '../runner.ts';
import { UsageError } from '../usage-error.ts';
import { showTasks } from './server.ts';

const MAX_TASKS = 1000;

export function tasksCommand(runner: Runner): Command {
  const command = new Command('tasks')
    .description("Lists a server's tasks, newest first.")
    .argument('<server>', 'uuid or hostname')
    .option('--limit <count>', 'at most so many, up to 1000', '20')
    .option('--active', 'only those that have not ended')
    .action(runner.action(tasks));
  return examples(command, ['cnapi tasks web-1', 'cnapi tasks web-1 --active --json']);
}

async function tasks(
  { client, output }: Context,
  [name]: readonly unknown[],
  { limit, active = false }: { limit: string; active?: boolean },
): Promise<void> {
  if (!/^\d{1,4}$/.test(limit) || Number(limit) < 1 || Number(limit) > 1000)
    throw new UsageError(`--limit ${limit} is not a number from 1 to 1000`);
  const { uuid } = await findServer(client, String(name));
  const all = await client.taskHistory(uuid, active ? MAX_TASKS : Number(limit));
  const shown = all.filter(({ status }) => !active || status === 'active').slice(0, Number(limit));
  if (output.json) return output.document(shown);
  showTasks(output, shown);
  if (shown.length === 0) output.note('It has no such tasks');
}
