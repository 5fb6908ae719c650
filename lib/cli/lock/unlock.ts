/** `cnapi unlock`: deletes the ticket of a holder that no longer exists, or a ticket in a queue. */
import { Command } from 'commander';
import { type CommandRunner, withExamples } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { forEach } from '../invocation/each.ts';
import { findTicket } from '../lookup/find.ts';

export function unlockCommand(runner: CommandRunner): Command {
  const command = new Command('unlock')
    .description('Deletes tickets: the lock passes to the next ticket. A holder that is still running loses it.')
    .argument('<ticket...>', 'uuids, as cnapi tickets shows them, or the beginning of one')
    .action(runner.action(unlock));
  return withExamples(command, ['cnapi unlock 9d3c5d6e-0f53-4c4e-8f43-2a1d2f0c7b10']);
}

async function unlock({ client, output }: Context, [uuids]: readonly unknown[]): Promise<number> {
  const { results: deleted, exitCode } = await forEach(output, uuids as string[], async (given) => {
    const uuid = await findTicket(client, given);
    await client.deleteTicket(uuid);
    if (!output.json) output.line(`deleted ${uuid}`);
    return uuid;
  });
  if (output.json) output.document({ deleted });
  return exitCode;
}
