/** `cnapi servers`: the fleet, filtered. */
import { Command } from 'commander';
import type { Server } from '../../client/answers.ts';
import type { Context } from '../context.ts';
import { shortTime } from '../duration.ts';
import { examples, type Runner, repeated } from '../runner.ts';
import type { Column } from '../table.ts';
import { UsageError } from '../usage-error.ts';
import { matches, parseWhere } from '../where.ts';

interface Options {
  status?: string;
  datacenter?: string;
  hostname?: string;
  where?: string[];
  limit?: string;
  wide?: boolean;
}

export function serversCommand(runner: Runner): Command {
  const command = new Command('servers')
    .description('Lists servers, in order of uuid.')
    .option('--status <status>', 'running or unknown')
    .option('--datacenter <name>', 'of this datacenter')
    .option('--hostname <name>', 'with this hostname; * stands for anything')
    .option(
      '--where <name=pattern>',
      'with a property such as traits.rack=r*; != for without; may be given again',
      repeated,
    )
    .option('--limit <count>', 'at most so many')
    .option('-w, --wide', 'when each was last heard, too')
    .action(runner.action(servers));
  return examples(command, [
    'cnapi servers --status unknown',
    "cnapi servers --hostname 'web-*' --wide",
    "cnapi servers --where 'traits.rack=r1' --json",
  ]);
}

async function servers({ client, output }: Context, _: unknown, options: Options): Promise<void> {
  const { datacenter, limit: limitText, wide = false } = options;
  const limit = limitText === undefined ? Number.POSITIVE_INFINITY : countOf(limitText);
  const conditions = conditionsOf(options).map(parseWhere);
  const found: Server[] = [];
  const extras = wide || output.json ? { extras: 'status,last_heartbeat' } : {};
  for await (const server of client.allServers({ ...extras, ...exactHostname(options) })) {
    if (found.length >= limit) break;
    if (conditions.every((condition) => matches(server, condition))) found.push(server);
  }
  if (output.json) return output.document(found);
  const columns: Column<Server>[] = [
    { head: 'UUID', of: ({ uuid }) => uuid },
    { head: 'HOSTNAME', of: ({ hostname }) => hostname, shrinks: true },
    { head: 'STATUS', of: ({ status }) => status },
    { head: 'DATACENTER', of: (server) => server.datacenter, shrinks: true },
  ];
  if (wide) columns.push({ head: 'LAST HEARD', of: (server) => shortTime(textOf(server.last_heartbeat)) });
  output.table(columns, found);
  if (found.length === 0) output.note(datacenter || conditions.length > 0 ? 'No server matches' : 'There is no server');
}

/** Asked of the API where it can tell; patterns are weighed here. */
function exactHostname({ hostname }: Options): { hostname?: string } {
  return hostname === undefined || hostname.includes('*') ? {} : { hostname };
}

function conditionsOf({ status, datacenter, hostname, where = [] }: Options): string[] {
  const given = { status, datacenter, hostname };
  const each = Object.entries(given).flatMap(([name, value]) => (value === undefined ? [] : [`${name}=${value}`]));
  return [...each, ...where];
}

function countOf(text: string): number {
  if (/^[1-9]\d{0,8}$/.test(text)) return Number(text);
  throw new UsageError(`--limit ${text} is not a number from 1 on`);
}

const textOf = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined);
