/** `cnapi instances`: lists the instances. */
import { Command } from 'commander';
import { type CommandRunner, withExamples } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { INSTANCE_COLUMNS } from './instance-columns.ts';

export function instancesCommand(runner: CommandRunner): Command {
  const command = new Command('instances')
    .description(
      'Lists the instances of cnapi, with their agents and the time since each last reported that it is alive.',
    )
    .action(runner.action(instances));
  return withExamples(command, ['cnapi instances', 'cnapi instances --json']);
}

async function instances({ client, output }: Context): Promise<void> {
  const found = await client.instances();
  if (output.json) return output.document(found);
  output.table(INSTANCE_COLUMNS, found);
}
