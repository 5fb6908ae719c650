/**
 * `cnapi server nics`: shows the NICs of a server, and changes their NIC tags by a workflow job.
 */
import { Command } from 'commander';
import { serverSetupContracts } from '../../protocol/api/server-setup.ts';
import { NIC_ACTIONS, type NicAction } from '../../protocol/nics.ts';
import { type CommandRunner, collectValues, withExamples, withExplanation } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { findServer } from '../lookup/find.ts';
import { EXIT, UsageError } from '../terminal/command-errors.ts';
import type { Column } from '../terminal/table.ts';
import { showCreatedWorkflow } from '../workflows/follow-workflow.ts';
import { NIC_HELP, parseNicChanges, parseNics, type ShownNic } from './nic-changes.ts';

const MORE = `
Without --update, --replace or --delete it shows the NICs and their tags. A NIC tag names a network that a NIC reaches; placement \
chooses servers by them. The network of the server itself is not changed.

A change prints the uuid of its workflow job. With --wait, Ctrl-C or a lost terminal ends this program and not the job.

Exit codes with --wait: 0 the job succeeded; 1 it failed or was cancelled.
`;

type Options = Partial<Record<NicAction, string[]>> & { wait?: boolean };

const COLUMNS: readonly Column<ShownNic>[] = [
  { head: 'NIC', of: ({ name }) => name },
  { head: 'MAC', of: ({ mac }) => mac },
  { head: 'LINK', of: ({ isUp }) => (isUp ? 'up' : 'down') },
  { head: 'TAGS', of: ({ tags }) => tags.join(', '), shrinks: true },
];

export function serverNicsCommand(runner: CommandRunner): Command {
  const command = new Command('nics')
    .description('Shows the NICs of a server with their NIC tags, and changes these.')
    .argument('<server>', 'uuid, the beginning of one, or hostname')
    .option('--update <nic=tags>', `adds NIC tags to a NIC; ${NIC_HELP}`, collectValues)
    .option('--replace <nic=tags>', 'gives a NIC exactly these tags, or none; may be repeated', collectValues)
    .option('--delete <nic=tags>', 'removes tags from a NIC; may be repeated', collectValues)
    .option('--wait', 'wait for the end of the job, with the progress on stderr')
    .action(runner.action(nics));
  return withExamples(withExplanation(command, MORE), [
    'cnapi server nics web-1',
    'cnapi server nics web-1 --update eth0=external --wait',
  ]);
}

async function nics(context: Context, [name]: readonly unknown[], options: Options): Promise<number> {
  const { client, output } = context;
  const [action, ...others] = NIC_ACTIONS.filter((option) => options[option] !== undefined);
  if (others.length > 0) throw new UsageError('One request has one of --update, --replace and --delete');
  if (action === undefined && options.wait) throw new UsageError('--wait needs --update, --replace or --delete');
  const { uuid: server_uuid } = await findServer(client, String(name));
  const server = await client.server(server_uuid);
  if (action !== undefined) {
    const changes = parseNicChanges(options[action] ?? [], server);
    const request = { server_uuid, action, nics: changes };
    const { job_uuid: uuid } = await client.ask(serverSetupContracts.UpdateServerNics, request);
    return showCreatedWorkflow(context, { uuid, wait: options.wait });
  }
  const nics = parseNics(server);
  if (output.json) output.document(nics.map(({ name: nic, mac, tags }) => ({ name: nic, mac, nic_tags: tags })));
  else output.table(COLUMNS, nics);
  return EXIT.ok;
}
