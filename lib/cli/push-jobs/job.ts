/** `cnapi job`: push jobs, one command on many servers after enough of them have agreed. */
import { Command, Option } from 'commander';
import type { CnapiClient } from '../../client/client.ts';
import { JOB_STATUSES, type PushJob, type PushNode } from '../../protocol/api/push/job-schemas.ts';
import { pushJobContracts } from '../../protocol/api/push/jobs.ts';
import { type CommandRunner, withExamples } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { findNode, findPushJob, newestPushJobs, readJobNodes } from '../lookup/find-push-job.ts';
import { findSchedule } from '../lookup/find-schedule.ts';
import { type Condition, matches, parseWhereOption } from '../lookup/where.ts';
import { lateReportOf } from '../output/node-ending.ts';
import { UsageError, WithheldError } from '../terminal/command-errors.ts';
import { parseCount } from '../terminal/count.ts';
import { escapeControls } from '../terminal/escape-controls.ts';
import { showJob, showSummary } from './follow-job.ts';
import { abortCommand, addCommand, changeCommand, deleteCommand } from './job-changes.ts';
import { outputCommand } from './job-output.ts';
import { JOB_COLUMNS, nodeLine } from './job-progress.ts';
import { retryCommand } from './job-retry.ts';
import { startCommand } from './job-start.ts';
import { jobWatchCommand } from './job-watch.ts';

export function jobCommand(runner: CommandRunner): Command {
  return new Command('job')
    .description('Manages push jobs: each runs one command on many servers, as soon as enough of them have agreed.')
    .addCommand(startCommand(runner))
    .addCommand(statusCommand(runner))
    .addCommand(listCommand(runner))
    .addCommand(jobWatchCommand(runner))
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
    .option('--summary', 'show only how many nodes have each status')
    .option('--node <server>', 'show only this node')
    .action(runner.action(status));
  return withExamples(command, [
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
  const job = await client.ask(pushJobContracts.GetPushJob, { id: await findPushJob(context, String(text)) });
  if (node !== undefined) {
    const found = await findNode(context, job.id, node);
    return output.json ? output.document(found) : output.line(nodeLine(found, job, await lateReport(client, found)));
  }
  if (output.json) return output.document(summary ? job : { ...job, nodes: await readJobNodes(context, job.id) });
  if (summary) return showSummary(output, job);
  await showJob(context, job);
}

/** What the agent of a crashed node reported after the crash was recorded. */
async function lateReport(client: CnapiClient, node: PushNode): Promise<string | undefined> {
  if (node.status !== 'crashed' || node.task_id === undefined) return undefined;
  return lateReportOf(node, await client.task(node.task_id));
}

/** What a query of `cnapi job list` may name. */
const PROPERTIES = ['id', 'command', 'actor', 'status', 'reason', 'user', 'dir'];

/** The properties that only some tokens may see. */
const CONTENTS = ['command', 'user', 'dir'];

function listCommand(runner: CommandRunner): Command {
  const command = new Command('list')
    .description('Lists push jobs, newest first.')
    .argument(
      '[query...]',
      `name=pattern or name!=pattern; the names are ${PROPERTIES.join(', ')}; every condition must hold`,
    )
    .addOption(new Option('--status <status>', 'only jobs with this status').choices(JOB_STATUSES))
    .option('--schedule <schedule>', 'only jobs that this schedule started: its id, or the beginning of it')
    .option('--limit <count>', 'at most this many', '20')
    .action(runner.action(list));
  return withExamples(command, [
    'cnapi job list',
    'cnapi job list --status running',
    'cnapi job list --schedule 5c4e',
    "cnapi job list actor=alice 'command=*nginx*'",
    'cnapi job list --limit 100 --json',
  ]);
}

interface ListOptions {
  limit: string;
  status?: PushJob['status'];
  schedule?: string;
}

async function list(context: Context, [query]: readonly unknown[], options: ListOptions): Promise<void> {
  const { output } = context;
  const { limit, status } = options;
  const conditions = (query as string[]).map(conditionOf);
  const matchesAll = (job: PushJob) => {
    if (job.withheld && conditions.some(({ path: [name = ''] }) => CONTENTS.includes(name)))
      throw new WithheldError('The command and the options of a push job');
    return conditions.every((condition) => matches(job, condition));
  };
  const count = parseCount(limit, '--limit');
  const schedule = options.schedule === undefined ? undefined : await findSchedule(context, options.schedule);
  const jobs = await newestPushJobs(context, {
    count,
    status,
    schedule,
    ...(conditions.length === 0 ? {} : { matches: matchesAll }),
  });
  if (output.json) return output.document(jobs);
  output.table(JOB_COLUMNS, jobs);
  if (jobs.length === 0)
    output.note([status, schedule, ...conditions].some(Boolean) ? 'No push job matches' : 'No push jobs');
}

/** @throws UsageError */
function conditionOf(text: string): Condition {
  const [name = ''] = text.split(/!?=/, 1);
  if (!text.includes('=') || !PROPERTIES.includes(name))
    throw new UsageError(`${escapeControls(text)} is not NAME=PATTERN with one of the names ${PROPERTIES.join(', ')}`);
  return parseWhereOption(text);
}
