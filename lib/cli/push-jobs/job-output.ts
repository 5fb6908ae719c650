/** `cnapi job output`: what the command of a push job wrote, on one node or on all of them. */
import { Command } from 'commander';
import { ApiError } from '../../client/client-errors.ts';
import type { PushNode } from '../../protocol/api/push/job-schemas.ts';
import { pushJobContracts } from '../../protocol/api/push/jobs.ts';
import type { Task } from '../../protocol/api/tasks.ts';
import { OUTPUT_STREAMS } from '../../protocol/output-streams.ts';
import { type CommandRunner, withExamples, withExplanation } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { readAhead } from '../invocation/read-ahead.ts';
import { findNode, findPushJob, readJobNodes } from '../lookup/find-push-job.ts';
import { LiveOutput, prefixOf } from '../output/live-output.ts';
import { hasNodeEnded, lateReportOf } from '../output/node-ending.ts';
import { createLabelOf } from '../output/reports.ts';
import { endOfTask } from '../output/task-end.ts';
import { EXIT, RefusedError, UsageError, WithheldError } from '../terminal/command-errors.ts';
import { sortByName } from '../terminal/name-order.ts';
import { nodeStatusOption } from './job-options.ts';

const MORE = `
Without a server it shows the output of all nodes where the command started, in order of their names, each line with the name of \
its server. It shows only the output of commands that have ended: cnapi job watch also shows that of commands that still run.

cnapi keeps the first and the last half MiB of each stream. If the agent of a server went down, the output that arrived before is \
shown once the agent is back; until then cnapi job watch shows it. What is missing is reported on stderr.

Exit codes: 0 all output was shown; 1 failed or refused; 2 wrong usage, or an unknown name or id; 4 some output is missing.
`;

export function outputCommand(runner: CommandRunner): Command {
  const command = new Command('output')
    .description("Shows what a push job's command wrote, on all its nodes or on one.")
    .argument('<job>', 'id, or the beginning of one')
    .argument('[server]', 'only on this one: uuid, the beginning of one, or hostname')
    .addOption(nodeStatusOption('only of nodes with this status'))
    .action(runner.action(showOutput));
  return withExamples(withExplanation(command, MORE), [
    'cnapi job output c0ff',
    'cnapi job output c0ff --status failed',
    'cnapi job output c0ff web-1',
  ]);
}

async function showOutput(
  context: Context,
  [text, name]: readonly unknown[],
  { status }: { status?: PushNode['status'] },
): Promise<number> {
  const { client } = context;
  const { id, withheld } = await client.ask(pushJobContracts.GetPushJob, {
    id: await findPushJob(context, String(text)),
  });
  if (withheld) throw new WithheldError('The command of a push job, and what it writes,');
  if (name === undefined) return ofAll(context, id, status);
  if (status !== undefined) throw new UsageError('--status chooses among all nodes; name no server with it');
  return ofOne(context, id, String(name));
}

async function ofOne(context: Context, id: string, name: string): Promise<number> {
  const { client, output } = context;
  const node = await findNode(context, id, name);
  if (node.task_id === undefined) throw new RefusedError(`The command did not start there: the node is ${node.status}`);
  const task = await client.task(node.task_id);
  if (output.json) output.document(task);
  else if (!hasNodeEnded(node)) noteRunning(context, id, 1);
  else return written(context, id, task, { node, prefix: undefined, label: '' });
  return EXIT.ok;
}

/**
 * Tasks that are read at the same time. Each has up to 2 MiB of output, six times that as JSON.
 * Over a slow connection several of them exceed the memory for answers, where one alone is
 * accepted.
 */
const TASKS_AT_ONCE = 8;
const isOverload = (error: unknown): boolean =>
  error instanceof ApiError && (error.statusCode === 429 || error.statusCode === 503);

/**
 * Writes the output of one node after the other, so that it stays together, and reads some nodes
 * ahead.
 */
async function ofAll(context: Context, id: string, status: PushNode['status'] | undefined): Promise<number> {
  const { client, output } = context;
  const nodes = sortByName(await readJobNodes(context, id, status));
  const started = nodes.flatMap(({ task_id, ...node }) => (task_id === undefined ? [] : [{ ...node, task_id }]));
  const servers = started.map(({ server_uuid: uuid, name: hostname }) => ({ uuid, hostname }));
  const labelOf = createLabelOf(servers);
  const width = Math.max(0, ...servers.map((server) => labelOf(server).length));
  let exitCode: number = EXIT.ok;
  const read = output.json ? started : started.filter(hasNodeEnded);
  const work = async (node: (typeof read)[number]) => ({ ...node, task: await client.task(node.task_id) });
  const tasks = readAhead(read, { maxAhead: TASKS_AT_ONCE, work, isOverload });
  for await (const { server_uuid, name, status, task } of tasks) {
    const label = labelOf({ uuid: server_uuid, hostname: name });
    if (output.json) output.record({ server_uuid, name, status, task });
    else
      exitCode = Math.max(
        exitCode,
        await written(context, id, task, { node: { status }, prefix: prefixOf(label, width), label }),
      );
    await output.ready();
  }
  if (output.json) return exitCode;
  if (started.length === 0) output.note('the command did not start on any of these nodes');
  const runningCount = started.filter((node) => !hasNodeEnded(node)).length;
  if (runningCount > 0) noteRunning(context, id, runningCount);
  return exitCode;
}

const noteRunning = ({ output }: Context, id: string, count: number): void =>
  output.note(
    `the command still runs on ${count === 1 ? '1 node' : `${count} nodes`}: cnapi job watch ${id.slice(0, 8)} shows what it writes`,
  );

interface About {
  node: Pick<PushNode, 'status'>;
  prefix: string | undefined;
  label: string;
}

/** Returns the exit code. */
async function written(context: Context, jobId: string, task: Task, about: About): Promise<number> {
  const { client, output } = context;
  const prefix = about.label === '' ? '' : `${about.label}: `;
  const { result } = endOfTask(task);
  if (result === undefined) {
    const reason = `its agent has not reported the end; cnapi job watch ${jobId.slice(0, 8)} shows what arrived before`;
    output.complain(`${prefix}${reason}`);
    return EXIT.incomplete;
  }
  const live = new LiveOutput(context, { raw: false, ...about });
  // An agent that went down while the command ran reports an end without output.
  if (!OUTPUT_STREAMS.some((stream) => typeof result[stream] === 'string'))
    for await (const event of client.followTask(task.id)) {
      if (event.name === 'output') live.write(event);
      await output.ready();
    }
  live.end(result, task.id);
  const late = lateReportOf(about.node, task);
  if (late !== undefined) output.note(`${prefix}the node is crashed, but ${late}`);
  return live.isIncomplete ? EXIT.incomplete : EXIT.ok;
}
