/** `cnapi server delete`: has the instances forget a server. */
import { Command } from 'commander';
import { serverContracts } from '../../protocol/api/servers.ts';
import { type CommandRunner, withExamples, withExplanation } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { findServer } from '../lookup/find.ts';
import { confirmServer, YES } from './confirm-server.ts';

const MORE = `
Nothing is changed on the machine. An agent that still runs there registers again, as a new server.
`;

export function deleteServerCommand(runner: CommandRunner): Command {
  const command = new Command('delete')
    .description('Deletes the record of a server.')
    .argument('<server>', 'uuid, the beginning of one, or hostname')
    .option(...YES)
    .action(runner.action(remove));
  return withExamples(withExplanation(command, MORE), ['cnapi server delete web-9']);
}

async function remove(context: Context, [name]: readonly unknown[], { yes }: { yes?: boolean }): Promise<void> {
  const { client, output } = context;
  const { uuid: server_uuid } = await findServer(client, String(name));
  const { hostname = server_uuid } = await client.server(server_uuid);
  await confirmServer(context, { does: 'deletes the record of', name: String(hostname), yes });
  await client.delete(serverContracts.DeleteServer, { server_uuid });
  if (output.json) output.document({ uuid: server_uuid });
  else output.line(`deleted ${hostname}`);
}
