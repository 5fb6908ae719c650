/** `cnapi instances`: lists the instances. */
import { Command } from 'commander';
import type { Instance } from '../../protocol/api/instances.ts';
import { type CommandRunner, withExamples } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { shortDuration, shortTime } from '../terminal/duration.ts';
import type { Column } from '../terminal/table.ts';

export function instancesCommand(runner: CommandRunner): Command {
  const command = new Command('instances')
    .description(
      'Lists the instances of cnapi, with their agents and the time since each last reported that it is alive.',
    )
    .action(runner.action(instances));
  return withExamples(command, ['cnapi instances', 'cnapi instances --json']);
}

export const INSTANCE_COLUMNS: readonly Column<Instance>[] = [
  { head: 'INSTANCE', of: ({ uuid }) => uuid, abbreviates: true },
  { head: 'URL', of: ({ url }) => url, shrinks: true },
  { head: 'STATE', of: ({ state }) => state },
  { head: 'PID', of: ({ pid }) => pid, align: 'right' },
  { head: 'AGENTS', of: ({ agents }) => agents, align: 'right' },
  { head: 'BEAT', of: ({ lease_age_ms }) => shortDuration(lease_age_ms), align: 'right', optional: 'early' },
  { head: 'VERSION', of: ({ version }) => version, optional: 'early' },
  { head: 'STARTED', of: ({ started }) => shortTime(started), optional: 'early' },
];

async function instances({ client, output }: Context): Promise<void> {
  const found = await client.instances();
  if (output.json) return output.document(found);
  output.table(INSTANCE_COLUMNS, found);
}
