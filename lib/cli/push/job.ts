/** `cnapi job`: push jobs, one command on many servers after enough of them have agreed. */
import { Command } from 'commander';
import { pushJobContracts } from '../../protocol/api/push-jobs.ts';
import { type CommandRunner, examples } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { findServer } from '../lookup/find.ts';
import { findJob, newestJobs, nodesOf } from '../lookup/find-job.ts';
import { parseCount } from '../terminal/count.ts';
import { escapeControls } from '../terminal/escape-controls.ts';
import { UsageError } from '../terminal/usage-error.ts';
import { show, showSummary } from './follow-job.ts';
import { abortCommand, addCommand, changeCommand, deleteCommand } from './job-changes.ts';
import { outputCommand } from './job-output.ts';
import { JOB_COLUMNS, lineOf } from './job-progress.ts';
import { retryCommand } from './job-retry.ts';
import { startCommand } from './job-start.ts';
import { watchCommand } from './job-watch.ts';

export function jobCommand(runner: CommandRunner): Command {
  return new Command('job')
    .description('Push jobs: runs one command on many servers, as soon as enough of them have agreed.')
    .addCommand(startCommand(runner))
    .addCommand(statusCommand(runner))
    .addCommand(listCommand(runner))
    .addCommand(watchCommand(runner))
    .addCommand(outputCommand(runner))
    .addCommand(retryCommand(runner))
    .addCommand(changeCommand(runner))
    .addCommand(addCommand(runner))
    .addCommand(abortCommand(runner))
    .addCommand(deleteCommand(runner));
}

function statusCommand(runner: CommandRunner): Command {
  const command = new Command('status')
    .description('Shows a push job: each node with its status, or counts.')
    .argument('<job>', 'id, or the beginning of one')
    .option('--summary', 'only how many nodes have each status')
    .option('--node <server>', 'only this node')
    .action(runner.action(status));
  return examples(command, [
    'cnapi job status c0ff',
    'cnapi job status c0ff --summary',
    'cnapi job status c0ff --node web-1',
  ]);
}

async function status(
  context: Context,
  [text]: readonly unknown[],
  { summary, node }: { summary?: boolean; node?: string },
): Promise<void> {
  const { client, output } = context;
  const job = await client.ask(pushJobContracts.GetPushJob, { id: await findJob(context, String(text)) });
  if (node !== undefined) {
    const { uuid } = await findServer(client, node);
    const found = (await nodesOf(context, job.id)).find(({ server_uuid }) => server_uuid === uuid);
    if (found === undefined) throw new UsageError(`${escapeControls(node)} is not a node of push job ${job.id}`);
    return output.json ? output.document(found) : output.line(lineOf(found, job));
  }
  if (output.json) return output.document(summary ? job : { ...job, nodes: await nodesOf(context, job.id) });
  if (summary) return showSummary(output, job);
  await show(context, job);
}

function listCommand(runner: CommandRunner): Command {
  const command = new Command('list')
    .description('Lists push jobs, newest first.')
    .option('--limit <count>', 'at most this many', '20')
    .action(runner.action(list));
  return examples(command, ['cnapi job list', 'cnapi job list --limit 100 --json']);
}

async function list(context: Context, _: readonly unknown[], options: { limit: string }): Promise<void> {
  const { output } = context;
  const jobs = await newestJobs(context, parseCount(options.limit, '--limit'));
  if (output.json) return output.document(jobs);
  output.table(JOB_COLUMNS, jobs);
  if (jobs.length === 0) output.note('No push jobs');
}
