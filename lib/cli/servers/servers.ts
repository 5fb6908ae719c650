/** `cnapi servers`: lists servers, with filters. */
import { Command, Option } from 'commander';
import type { NamedServer } from '../../protocol/api/servers.ts';
import { type CommandRunner, collectValues, withExamples } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { hasProperty, matches, noSuchProperty, parseWhereOption } from '../lookup/where.ts';
import { parseCount } from '../terminal/count.ts';
import { shortTime } from '../terminal/duration.ts';
import type { Column } from '../terminal/table.ts';

interface Options {
  status?: string;
  datacenter?: string;
  hostname?: string;
  where?: string[];
  limit?: string;
  wide?: boolean;
}

const STATUSES = ['running', 'unknown', 'rebooting'];

export function serversCommand(runner: CommandRunner): Command {
  const command = new Command('servers')
    .description('Lists servers, in order of uuid.')
    .addOption(new Option('--status <status>', 'only servers with this status').choices(STATUSES))
    .option('--datacenter <name>', 'only servers of this datacenter')
    .option('--hostname <name>', 'only servers with this hostname; * matches any text')
    .option(
      '--where <name=pattern>',
      'only servers with this property, such as traits.rack=r*; != excludes them; may be repeated',
      collectValues,
    )
    .option('--limit <count>', 'at most this many')
    .option('-w, --wide', 'also show when an instance last heard from each agent')
    .action(runner.action(servers));
  return withExamples(command, [
    'cnapi servers --status unknown',
    "cnapi servers --hostname 'web-*' --wide",
    "cnapi servers --where 'traits.rack=r1' --json",
  ]);
}

async function servers({ client, output }: Context, _: unknown, options: Options): Promise<void> {
  const { datacenter, limit: limitText, wide = false } = options;
  const limit = limitText === undefined ? Number.POSITIVE_INFINITY : parseCount(limitText, '--limit');
  const conditions = conditionsOf(options).map(parseWhereOption);
  const servers: NamedServer[] = [];
  let isAny = false;
  // Conditions on properties that no server had so far: with `!=`, a misspelt name matches all.
  let unmet = (options.where ?? []).map(parseWhereOption);
  const extras = wide || output.json ? { extras: 'status,last_heartbeat' } : {};
  for await (const server of client.allServers({ ...extras, ...exactHostname(options) })) {
    if (servers.length >= limit && unmet.length === 0) break;
    isAny = true;
    unmet = unmet.filter((condition) => !hasProperty(server, condition));
    if (servers.length < limit && conditions.every((condition) => matches(server, condition))) servers.push(server);
  }
  const [misspelt] = unmet;
  if (misspelt !== undefined && isAny) throw noSuchProperty(misspelt);
  if (output.json) return output.document(servers);
  const columns: Column<NamedServer>[] = [
    { head: 'UUID', of: ({ uuid }) => uuid },
    { head: 'HOSTNAME', of: ({ hostname }) => hostname, shrinks: true },
    { head: 'STATUS', of: ({ status }) => status },
    { head: 'DATACENTER', of: (server) => server.datacenter, shrinks: true },
  ];
  if (wide) columns.push({ head: 'LAST HEARD', of: lastHeard });
  output.table(columns, servers);
  if (servers.length > 0) return;
  output.note(datacenter || conditions.length > 0 ? 'No server matches' : 'There is no server');
}

/** An exact hostname is sent to the API as a filter; patterns are matched here. */
function exactHostname({ hostname }: Options): { hostname?: string } {
  return hostname === undefined || hostname.includes('*') ? {} : { hostname };
}

function conditionsOf({ status, datacenter, hostname, where = [] }: Options): string[] {
  const given = { status, datacenter, hostname };
  const each = Object.entries(given).flatMap(([name, value]) => (value === undefined ? [] : [`${name}=${value}`]));
  return [...each, ...where];
}

/**
 * The instance that holds the agent of a `running` server hears from it every second; others do
 * not know the exact time. For other servers the database has the last time.
 */
export function lastHeard({ status, last_heartbeat }: NamedServer): string | undefined {
  return status === 'running' ? 'now' : shortTime(textOf(last_heartbeat));
}

const textOf = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined);
