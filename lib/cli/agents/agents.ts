/** `cnapi agents`: the versions of agents, and their upgrade. */
import { Command } from 'commander';
import { z } from 'zod';
import type { NamedServer } from '../../protocol/api/servers.ts';
import { type CommandRunner, collectValues, withExamples } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { type AgentUpgradeOptions, upgradeAgents } from './upgrade.ts';
import { agentVersionOf } from './upgrade-plan.ts';

export function agentsCommand(runner: CommandRunner): Command {
  const command = new Command('agents').description('Shows the versions of agents, and upgrades agents.');
  withExamples(
    command
      .command('list')
      .description('Lists the agents by server, with their versions and how the last upgrade ended.'),
    ['cnapi agents list'],
  ).action(runner.action((context) => list(context)));
  withExamples(
    command
      .command('upgrade')
      .description(
        'Installs a signed package of the agent on servers, wave by wave. Servers that have its version are skipped, so the same command continues an upgrade that was halted. Exits with 0 if all servers have the version.',
      ),
    [
      'cnapi agents upgrade --all --package https://h/cn-agent-0.3.0.tar',
      'cnapi agents upgrade web-1 --package /srv/cn-agent-0.3.0.tar --dry-run',
    ],
  )
    .argument('[query|server...]', 'name=pattern as in --where; or uuids, beginnings of them, or hostnames')
    .option('--all', 'upgrade all servers')
    .option(
      '--where <name=pattern>',
      'only servers with this property; != excludes them; may be repeated',
      collectValues,
    )
    .option('--group <name>', 'the servers of this server group')
    .option('--package <source>', 'URL of the package (https, http or file), or an absolute path on the servers')
    .option('--to <version>', 'the version of the package (default: the one in its name, NAME-VERSION.tar)')
    .option('--wave <amount>', 'servers of each wave: a number, or a percentage of those to upgrade (default 10%)')
    .option('--halt-on <count>', 'begin no further upgrade after so many failures (default 1)')
    .option('--downgrade', 'also servers whose version is newer')
    .option('--retry', 'also install a version that was rolled back before')
    .option('--dry-run', 'only show the waves')
    .action(
      runner.action((context, [names], options: AgentUpgradeOptions) =>
        upgradeAgents(context, names as string[], options),
      ),
    );
  return withExamples(command, ['cnapi agents list']);
}

/** An agent may send anything. */
const lastUpdate = z.object({
  'CN Agent Update': z.object({ version: z.string(), outcome: z.string(), reason: z.string().optional() }),
});

type LastUpdate = z.output<typeof lastUpdate>['CN Agent Update'];

async function list({ client, output }: Context): Promise<void> {
  const servers: NamedServer[] = [];
  for await (const server of client.allServers({ extras: 'status,sysinfo' })) servers.push(server);
  if (output.json)
    return output.document(
      servers.map((server) => ({
        server_uuid: server.uuid,
        hostname: server.hostname,
        status: server.status,
        version: agentVersionOf(server) ?? null,
        last_update: lastUpdateOf(server) ?? null,
      })),
    );
  output.table(
    [
      { head: 'SERVER', of: ({ uuid }) => uuid },
      { head: 'HOSTNAME', of: ({ hostname }) => hostname, shrinks: true },
      { head: 'STATUS', of: ({ status }) => status },
      { head: 'VERSION', of: (server) => agentVersionOf(server) },
      { head: 'LAST UPGRADE', of: (server) => shownUpdate(lastUpdateOf(server)), shrinks: true },
    ],
    servers,
  );
}

const lastUpdateOf = ({ sysinfo }: NamedServer): LastUpdate | undefined =>
  lastUpdate.safeParse(sysinfo).data?.['CN Agent Update'];

const shownUpdate = (update: LastUpdate | undefined): string | undefined =>
  update && [`${update.version} ${update.outcome}`, update.reason].filter((part) => part !== undefined).join(': ');
