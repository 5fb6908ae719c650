/**
 * `cnapi server`: shows one server, the history of its status, and its last tasks; sets it up,
 * reboots and resets it.
 */
import { Command } from 'commander';
import type { StatusChange } from '../../protocol/api/servers.ts';
import { type CommandRunner, withExamples } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { findServer } from '../lookup/find.ts';
import { TASK_COLUMNS } from '../tasks/task-table.ts';
import { tasksOf } from '../tasks/tasks.ts';
import { shortTime } from '../terminal/duration.ts';
import { errorReportOf, errorReportText } from '../terminal/error-report.ts';
import type { Column } from '../terminal/table.ts';
import { serverNicsCommand } from './server-nics.ts';
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
      'Shows one server: its properties, its status with the reason, its last tasks. Sets a server up, reboots or resets it.',
    )
    .argument('<server>', 'uuid, the beginning of one, or hostname')
    .action(runner.action(server))
    .addCommand(setUpServerCommand(runner))
    .addCommand(serverNicsCommand(runner))
    .addCommand(rebootServerCommand(runner))
    .addCommand(resetServerCommand(runner));
  return withExamples(command, ['cnapi server web-1', 'cnapi server web-1 --json | jq .status_history']);
}

async function server({ client, output }: Context, [name]: readonly unknown[]): Promise<void> {
  const { uuid } = await findServer(client, String(name));
  const [found, changes, tasks] = await Promise.all([
    client.server(uuid),
    client.statusHistory(uuid, CHANGES),
    tasksOf(client, uuid, { limit: CHANGES }).catch((error: unknown) => {
      output.complain(`its tasks cannot be read: ${errorReportText(errorReportOf(error))}`);
      return undefined;
    }),
  ]);
  if (output.json) return output.document({ ...found, status_history: changes, task_history: tasks?.found ?? null });
  const [latest] = changes;
  output.facts([
    ['uuid', found.uuid],
    ['hostname', found.hostname],
    ['status', found.status],
    ['since', latest && `${shortTime(latest.since)} (${latest.reason})`],
    ['decided by', latest?.cnapi_uuid],
    ['datacenter', found.datacenter],
    ['last heard', lastHeard(found)],
    ['booted', found.last_boot && shortTime(String(found.last_boot))],
    ['memory MiB', found.ram],
    ['platform', found.current_platform],
    ['setup', found.setup],
    ['comments', found.comments],
  ]);
  showChanges(output, changes);
  if (tasks === undefined || tasks.lines.length === 0) return;
  output.line('');
  output.table(TASK_COLUMNS, tasks.lines);
}

function showChanges(output: Context['output'], changes: readonly StatusChange[]): void {
  if (changes.length === 0) return;
  output.line('');
  output.table(STATUS_CHANGE_COLUMNS, changes);
}
