/**
 * `cnapi server`: shows one server, the history of its status, and its last tasks; pauses its
 * agent, sets it up, reboots, resets and deletes it.
 */
import { Command } from 'commander';
import type { CnapiClient } from '../../client/client.ts';
import type { Server, StatusChange } from '../../protocol/api/servers.ts';
import type { WorkflowJob } from '../../protocol/api/workflows.ts';
import { type CommandRunner, withExamples } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { findServer } from '../lookup/find.ts';
import { newestWorkflows } from '../lookup/find-workflow.ts';
import { TASK_COLUMNS } from '../tasks/task-table.ts';
import { readTasks } from '../tasks/tasks.ts';
import { shortTime } from '../terminal/duration.ts';
import { buildErrorReport, errorReportText } from '../terminal/error-report.ts';
import type { Column } from '../terminal/table.ts';
import { deleteServerCommand } from './server-delete.ts';
import { serverNicsCommand } from './server-nics.ts';
import { pauseServerCommand, resumeServerCommand } from './server-pause.ts';
import { rebootServerCommand } from './server-reboot.ts';
import { resetServerCommand, setUpServerCommand } from './server-setup.ts';
import { lastHeard } from './servers.ts';

const CHANGES = 5;

export const STATUS_CHANGE_COLUMNS: readonly Column<StatusChange>[] = [
  { head: 'SINCE', of: ({ since }) => shortTime(since) },
  { head: 'STATUS', of: ({ status }) => status },
  { head: 'BEFORE', of: ({ previous }) => previous, optional: true },
  { head: 'REASON', of: ({ reason }) => reason, shrinks: true },
  { head: 'INSTANCE', of: ({ cnapi_uuid }) => cnapi_uuid, abbreviates: true },
];

export function serverCommand(runner: CommandRunner): Command {
  const command = new Command('server')
    .description(
      'Shows one server: its properties, its status with the reason, its last tasks. Sets a server up, pauses its agent, reboots, resets or deletes it.',
    )
    .argument('<server>', 'uuid, the beginning of one, or hostname')
    .action(runner.action(server))
    .addCommand(setUpServerCommand(runner))
    .addCommand(serverNicsCommand(runner))
    .addCommand(pauseServerCommand(runner))
    .addCommand(resumeServerCommand(runner))
    .addCommand(rebootServerCommand(runner))
    .addCommand(resetServerCommand(runner))
    .addCommand(deleteServerCommand(runner));
  return withExamples(command, ['cnapi server web-1', 'cnapi server web-1 --json | jq .status_history']);
}

async function server({ client, output }: Context, [name]: readonly unknown[]): Promise<void> {
  const { uuid } = await findServer(client, String(name));
  const unreadable = (what: string) => (error: unknown) => {
    output.complain(`its ${what} cannot be read: ${errorReportText(buildErrorReport(error))}`);
    return undefined;
  };
  const [shown, jobs, changes, tasks] = await Promise.all([
    client.server(uuid),
    unfinishedJobs(client, uuid).catch(unreadable('workflow jobs')),
    client.statusHistory(uuid, CHANGES),
    readTasks(client, uuid, { limit: CHANGES }).catch(unreadable('tasks')),
  ]);
  if (output.json)
    return output.document({
      ...{ ...shown, status_history: changes, task_history: tasks?.found ?? null, workflow_jobs: jobs ?? null },
    });
  const [latest] = changes;
  output.facts([
    ['uuid', shown.uuid],
    ['hostname', shown.hostname],
    ['status', shown.status],
    ['since', latest && `${shortTime(latest.since)} (${latest.reason})`],
    ['decided by', latest?.cnapi_uuid],
    ['datacenter', shown.datacenter],
    ['last heard', lastHeard(shown)],
    ['booted', shown.last_boot && shortTime(String(shown.last_boot))],
    ['memory MiB', shown.ram],
    ['platform', shown.current_platform],
    ['setup', shown.setup],
    ['now', markOf(shown)],
    ...(jobs ?? []).map((job) => ['job', jobText(job)] as const),
    ['comments', shown.comments],
  ]);
  showChanges(output, changes);
  if (tasks === undefined || tasks.lines.length === 0) return;
  output.line('');
  output.table(TASK_COLUMNS, tasks.lines);
}

/** The jobs of the server that have not ended, at most `CHANGES` of each execution. */
async function unfinishedJobs(client: CnapiClient, server_uuid: string): Promise<WorkflowJob[]> {
  const found = await Promise.all(
    (['running', 'queued'] as const).map((execution) => newestWorkflows(client, { execution, server_uuid }, CHANGES)),
  );
  return found.flatMap(({ jobs }) => jobs);
}

const markOf = ({ transitional_status, setting_up }: Server): string =>
  [transitional_status, setting_up === true && 'setting up'].filter(Boolean).join(', ');

const jobText = ({ uuid, name, waiting_for: present }: WorkflowJob): string =>
  `${name} ${uuid.slice(0, 8)}${present === undefined ? '' : `: ${present.step}`}`;

function showChanges(output: Context['output'], changes: readonly StatusChange[]): void {
  if (changes.length === 0) return;
  output.line('');
  output.table(STATUS_CHANGE_COLUMNS, changes);
}
