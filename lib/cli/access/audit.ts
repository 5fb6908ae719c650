/** `cnapi audit`: lists who changed what. */
import { Command } from 'commander';
import { pages } from '../../client/pages.ts';
import type { AuditRecord } from '../../protocol/api/audit.ts';
import { isUuid } from '../../protocol/api/contract/rules.ts';
import { type CommandRunner, withExamples } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { findServerUuid, isPrefix, serverLabels } from '../lookup/find.ts';
import { parseCount } from '../terminal/count.ts';
import { parseTime, shortTime } from '../terminal/duration.ts';
import type { Column } from '../terminal/table.ts';

interface Options {
  actor?: string;
  server?: string;
  action?: string;
  object?: string;
  since?: string;
  until?: string;
  limit: string;
  wide?: boolean;
}

const PAGE = 500;

export function auditCommand(runner: CommandRunner): Command {
  const command = new Command('audit')
    .description('Lists requests that changed something, newest first: caller, action, server and outcome.')
    .option('--actor <name>', 'only requests of this caller: the name of a token or network')
    .option('--server <server>', 'only requests about this server, also push jobs on it and others: uuid or hostname')
    .option('--action <name>', 'only requests of this kind, such as CreateTask')
    .option(
      '--object <id>',
      'only requests about this task, ticket, token or instance; the beginning of its id is enough',
    )
    .option('--since <time>', 'only from this time on: 2030-01-31T12:00:00Z, or 2h for two hours ago')
    .option('--until <time>', 'only until this time')
    .option('--limit <count>', 'at most this many', '50')
    .option('-w, --wide', 'also show the address of the caller and the id of the request')
    .action(runner.action(audit));
  return withExamples(command, [
    'cnapi audit --since 1h',
    'cnapi audit --server web-1 --action CommandExecute --json',
    'cnapi audit --object 4f7d3c52',
  ]);
}

/** `labelOf` returns the name of a server for people. */
function columns(labelOf: (uuid: string) => string, wide: boolean): readonly Column<AuditRecord>[] {
  const usual: readonly Column<AuditRecord>[] = [
    { head: 'TIME', of: ({ time }) => shortTime(time) },
    { head: 'ACTOR', of: ({ actor }) => actor, shrinks: true },
    { head: 'ACTION', of: ({ action }) => action, shrinks: true },
    { head: 'SERVER', of: ({ server_uuid }) => server_uuid && labelOf(server_uuid), shrinks: true },
    { head: 'STATUS', of: ({ status, code }) => (code ? `${status} ${code}` : status), shrinks: true },
    { head: 'OBJECT', of: ({ object }) => object, abbreviates: true },
  ];
  const further: readonly Column<AuditRecord>[] = [
    { head: 'SOURCE', of: ({ source }) => source },
    { head: 'REQUEST', of: ({ request_id }) => request_id },
  ];
  return wide ? [...usual, ...further] : usual;
}

async function audit({ client, output, clock }: Context, _: unknown, options: Options): Promise<void> {
  const wanted = parseCount(options.limit, '--limit');
  const query = {
    actor: options.actor,
    action: options.action,
    ...objectOf(options.object),
    since: options.since && parseTime(options.since, '--since', clock.wallTime()),
    until: options.until && parseTime(options.until, '--until', clock.wallTime()),
    server: options.server && (await findServerUuid(client, options.server)),
  };
  const records = pages(async ({ limit, after }) => {
    const before = after === undefined ? undefined : Number(after);
    const entries = await client.audit({ ...query, limit: Math.min(PAGE, limit), before });
    // A page of large records is short: only an empty page shows the end.
    return { items: entries, next: entries.at(-1)?.id.toString() };
  }, wanted);
  const entries = await Array.fromAsync(records);
  if (output.json) return output.document(entries);
  output.table(columns(await serverLabels(client, entries), options.wide === true), entries);
  if (entries.length === 0) output.note('There is no such entry');
}

function objectOf(text: string | undefined): { object?: string; object_prefix?: string } {
  if (text === undefined) return {};
  if (isUuid(text)) return { object: text.toLowerCase() };
  return isPrefix(text) ? { object_prefix: text.toLowerCase() } : { object: text };
}
