/** `cnapi workflow`: lists, shows, waits for and cancels workflow jobs. */
import { Command, Option } from 'commander';
import type { CnapiClient } from '../../client/client.ts';
import { ApiError } from '../../client/client-errors.ts';
import {
  WORKFLOW_EXECUTIONS,
  WORKFLOW_NAMES,
  type WorkflowJob,
  workflowContracts,
} from '../../protocol/api/workflows.ts';
import { type CommandRunner, withExamples, withExplanation } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { forEach } from '../invocation/each.ts';
import { findServer, serverLabels } from '../lookup/find.ts';
import { explainNoWorkflow, findWorkflow, MAX_WORKFLOWS, newestWorkflows } from '../lookup/find-workflow.ts';
import { parseCount } from '../terminal/count.ts';
import { parseDuration, shortTime } from '../terminal/duration.ts';
import type { Column } from '../terminal/table.ts';
import { followWorkflow } from './follow-workflow.ts';
import { failedStepOf, failureLine, presentLine, STEP_COLUMNS, stepLines } from './workflow-lines.ts';

const WAIT = `
It says how each step ended, which task the present step runs, and what it waits for. Ctrl-C, or a lost terminal, ends this program \
and not the job.

Exit codes: 0 the job succeeded; 1 it failed, was cancelled, or did not end within --timeout.
`;

export function workflowCommand(runner: CommandRunner): Command {
  const ofOne = (name: string, description: string) =>
    new Command(name).description(description).argument('<workflow>', 'uuid, or the beginning of one');
  return new Command('workflow')
    .description('Manages workflow jobs: work of several steps on one server, such as its reboot.')
    .addCommand(listCommand(runner))
    .addCommand(
      withExamples(
        ofOne('show', 'Shows a workflow job: its steps, how they ended, and what it waits for.').action(
          runner.action(show),
        ),
        ['cnapi workflow show b5e7', 'cnapi workflow show b5e7 --json'],
      ),
    )
    .addCommand(
      withExamples(
        withExplanation(
          ofOne('wait', 'Waits for the end of a workflow job.')
            .option('--timeout <duration>', 'wait no longer than this')
            .action(runner.action(wait)),
          WAIT,
        ),
        ['cnapi workflow wait b5e7', 'cnapi workflow wait b5e7 --timeout 30m'],
      ),
    )
    .addCommand(
      withExamples(
        new Command('cancel')
          .description(
            'Cancels workflow jobs. A step that has not begun does not begin; steps that undo what was begun still follow.',
          )
          .argument('<workflow...>', 'uuids, or the beginning of one')
          .action(runner.action(cancel)),
        ['cnapi workflow cancel b5e7'],
      ),
    );
}

function listCommand(runner: CommandRunner): Command {
  const command = new Command('list')
    .description('Lists workflow jobs, newest first.')
    .addOption(new Option('--execution <execution>', 'only jobs in this execution').choices(WORKFLOW_EXECUTIONS))
    .addOption(new Option('--name <name>', 'only jobs of this workflow').choices(WORKFLOW_NAMES))
    .option('--server <server>', 'only jobs of this server')
    .option('--limit <count>', `at most this many, up to ${MAX_WORKFLOWS}`, '20')
    .action(runner.action(list));
  return withExamples(command, [
    'cnapi workflow list --execution running',
    'cnapi workflow list --server web-1 --json',
  ]);
}

interface ListOptions {
  execution?: WorkflowJob['execution'];
  name?: string;
  server?: string;
  limit: string;
}

async function list(context: Context, _: readonly unknown[], options: ListOptions): Promise<void> {
  const { client, output } = context;
  const { execution, name } = options;
  const count = parseCount(options.limit, '--limit', MAX_WORKFLOWS);
  const server_uuid = options.server === undefined ? undefined : (await findServer(client, options.server)).uuid;
  const { jobs, isMore } = await newestWorkflows(client, { execution, name, server_uuid }, count);
  if (output.json) return output.document(jobs);
  output.table(columnsOf(await serverLabels(client, jobs)), jobs);
  if (jobs.length === 0)
    output.note([execution, name, server_uuid].some(Boolean) ? 'No workflow job matches' : 'No workflow jobs');
  else if (isMore) output.note(`There are more; --limit shows up to ${MAX_WORKFLOWS}`);
}

function columnsOf(labelOf: (uuid: string) => string): readonly Column<WorkflowJob>[] {
  return [
    { head: 'CREATED', of: ({ created_at }) => shortTime(created_at), optional: true },
    { head: 'WORKFLOW', of: ({ name }) => name, shrinks: true },
    { head: 'SERVER', of: ({ server_uuid }) => labelOf(server_uuid), shrinks: true },
    { head: 'EXECUTION', of: ({ execution }) => execution },
    { head: 'STEP', of: (job) => job.waiting_for?.step ?? failedStepOf(job)?.name, shrinks: true },
    { head: 'ACTOR', of: ({ actor }) => actor, shrinks: true, optional: true },
    { head: 'UUID', of: ({ uuid }) => uuid, abbreviates: true },
  ];
}

async function found({ client }: Context, text: unknown): Promise<WorkflowJob> {
  const uuid = await findWorkflow(client, String(text));
  return client
    .ask(workflowContracts.GetWorkflowJob, { uuid })
    .catch((error: unknown) => explainNoWorkflow(error, uuid));
}

async function show(context: Context, [text]: readonly unknown[]): Promise<void> {
  const { client, output } = context;
  const job = await found(context, text);
  if (output.json) return output.document(job);
  const labelOf = await serverLabels(client, [job]);
  output.facts([
    ['uuid', job.uuid],
    ['workflow', job.name],
    ['server', labelOf(job.server_uuid)],
    ['execution', job.execution],
    ['created', `${shortTime(job.created_at)} by ${job.actor ?? 'unknown'}`],
    ['ended', job.finished_at && shortTime(job.finished_at)],
    ['failed', failureLine(job)],
    ['now', presentLine(job)],
    ['since', job.waiting_for && shortTime(job.waiting_for.since)],
    ['cancelled by', job.canceled_by],
  ]);
  output.line('');
  output.table(STEP_COLUMNS, stepLines(job));
}

async function wait(context: Context, [text]: readonly unknown[], options: { timeout?: string }): Promise<number> {
  const timeoutMs = options.timeout === undefined ? undefined : parseDuration(options.timeout, '--timeout');
  const { uuid } = await found(context, text);
  return followWorkflow(context, uuid, { timeoutMs });
}

async function cancel({ client, output }: Context, [texts]: readonly unknown[]): Promise<number> {
  const { results, exitCode } = await forEach(output, texts as string[], async (text) => {
    const uuid = await findWorkflow(client, text);
    const job = await requestCancel(client, uuid).catch((error: unknown) => explainNoWorkflow(error, uuid));
    if (!output.json) output.line(`cancel of workflow job ${uuid} requested`);
    return job;
  });
  if (output.json) output.document(results);
  return exitCode;
}

/**
 * Also succeeds when the answer was lost and the repeated request finds that the first one has
 * ended the job.
 */
async function requestCancel(client: CnapiClient, uuid: string): Promise<WorkflowJob> {
  try {
    return await client.ask(workflowContracts.PutWorkflowCancel, { uuid });
  } catch (error) {
    if (!(error instanceof ApiError && error.mayBeDone && error.code === 'WorkflowJobEnded')) throw error;
    const job = await client.ask(workflowContracts.GetWorkflowJob, { uuid });
    if (!job.cancel_requested) throw error;
    return job;
  }
}
