/** `cnapi noderole`: lists, shows and changes noderoles, which are roles on servers. */
import { Command, Option } from 'commander';
import {
  annealerContracts,
  NODEROLE_STATES,
  type Noderole,
  type NoderoleAnswer,
  type NoderoleState,
} from '../../protocol/api/annealer.ts';
import { deployments } from '../../protocol/api/documents/annealer.ts';
import { isJsonObject, type JsonObject } from '../../protocol/json/bounded-json.ts';
import { type CommandRunner, withExamples } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { deleteEach, forEach } from '../invocation/each.ts';
import { findServer, serverLabels } from '../lookup/find.ts';
import { findDocument } from '../lookup/find-document.ts';
import { EXIT, UsageError } from '../terminal/command-errors.ts';
import { parseCount } from '../terminal/count.ts';
import { shortTime } from '../terminal/duration.ts';
import type { Column } from '../terminal/table.ts';
import { findNoderole, readAllNoderoles } from './find-noderole.ts';

const NAMED = 'uuid, or ROLE@SERVER';

export function noderoleCommand(runner: CommandRunner): Command {
  const command = new Command('noderole').description(
    'Manages noderoles: roles on servers, as the annealer runs them.',
  );
  const add = (name: string, description: string, examples: readonly string[]) =>
    withExamples(command.command(name).description(description), examples);
  add('list', 'Lists noderoles in the order in which they run.', [
    'cnapi noderole list --deployment shop',
    'cnapi noderole list --state error --json',
  ])
    .option('--deployment <deployment>', 'only those of this deployment: its name or uuid')
    .option('--server <server>', 'only those of this server')
    .option('--role <role>', 'only those of this role')
    .addOption(new Option('--state <state>', 'only those in this state').choices(NODEROLE_STATES))
    .option('--limit <count>', 'at most this many (default: all)')
    .action(runner.action(list));
  add('get', 'Shows a noderole: why it is in its state, its data and its neighbours.', ['cnapi noderole get web@web-1'])
    .argument('<noderole>', NAMED)
    .action(runner.action(get));
  add('set', 'Proposes data for a noderole. It takes effect at the next commit of its deployment.', [
    `cnapi noderole set web@web-1 '{"port": 8080}'`,
  ])
    .argument('<noderole>', NAMED)
    .argument('<data>', 'a JSON object: all of its data')
    .action(runner.action(set));
  add('retry', 'Tries noderoles in error again.', ['cnapi noderole retry web@web-1'])
    .argument('<noderole...>', NAMED)
    .action(runner.action((context, [names]) => changeEach(context, names, annealerContracts.RetryNoderole)));
  add('propose', 'Takes noderoles out until the next commit of their deployment, which runs them again.', [
    'cnapi noderole propose web@web-1',
  ])
    .argument('<noderole...>', NAMED)
    .action(runner.action((context, [names]) => changeEach(context, names, annealerContracts.ProposeNoderole)));
  add(
    'delete',
    'Deletes noderoles. One that others require is refused, unless they are named too. Servers keep what their runs have done.',
    ['cnapi noderole delete web@web-1'],
  )
    .argument('<noderole...>', NAMED)
    .action(runner.action(remove));
  return command;
}

/**
 * Deletes children before their parents, in whatever order they are named. A name without a
 * noderole is refused, and the others are deleted.
 */
async function remove({ client, output }: Context, [names]: readonly unknown[]): Promise<number> {
  const named = await forEach(output, names as string[], async (name) => {
    const uuid = await findNoderole(client, name);
    return client.ask(annealerContracts.GetNoderole, { uuid });
  });
  if (named.exitCode === EXIT.noAnswer) return named.exitCode;
  const childrenFirst = named.results.toSorted((one, other) => other.cohort - one.cohort).map(({ uuid }) => uuid);
  const exitCode = await deleteEach(output, 'noderole', [...new Set(childrenFirst)], (uuid) =>
    client.delete(annealerContracts.DeleteNoderole, { uuid }),
  );
  return Math.max(named.exitCode, exitCode);
}

interface ListOptions {
  deployment?: string;
  server?: string;
  role?: string;
  state?: NoderoleState;
  limit?: string;
}

async function list(context: Context, _: readonly unknown[], options: ListOptions): Promise<void> {
  const { client, output } = context;
  const { role, state } = options;
  const wanted = options.limit === undefined ? undefined : parseCount(options.limit, '--limit');
  const deployment =
    options.deployment === undefined ? undefined : (await findDocument(client, deployments, options.deployment)).uuid;
  const server_uuid = options.server === undefined ? undefined : (await findServer(client, options.server)).uuid;
  const found = await readAllNoderoles(client, { deployment, server_uuid, role, state }, wanted);
  if (output.json) return output.document(found);
  output.table(columnsOf(await serverLabels(client, found)), found);
  if (found.length === 0) output.note('There are no such noderoles');
}

const columnsOf = (labelOf: (uuid: string) => string): readonly Column<Noderole>[] => [
  { head: 'ROLE', of: ({ role }) => role, shrinks: true },
  { head: 'SERVER', of: ({ server_uuid }) => labelOf(server_uuid), shrinks: true },
  { head: 'STATE', of: ({ state }) => state },
  { head: 'SINCE', of: ({ state_since }) => shortTime(state_since), optional: true },
  { head: 'ERROR', of: ({ error }) => error && `${error.code}: ${error.message}`, shrinks: true, optional: 'early' },
  { head: 'UUID', of: ({ uuid }) => uuid },
];

async function get({ client, output }: Context, [name]: readonly unknown[]): Promise<void> {
  const uuid = await findNoderole(client, String(name));
  const noderole = await client.ask(annealerContracts.GetNoderole, { uuid });
  if (output.json) return output.document(noderole);
  const labelOf = await serverLabels(client, [noderole, ...noderole.parents, ...noderole.children]);
  output.facts(factsOf(noderole, labelOf));
}

type Fact = [string, unknown];

function factsOf(noderole: NoderoleAnswer, labelOf: (uuid: string) => string): Fact[] {
  const { error, run, parents, children } = noderole;
  const named = (all: NoderoleAnswer['parents']) =>
    all.map(({ role, server_uuid, state }) => `${role}@${labelOf(server_uuid)} ${state}`).join(', ') || undefined;
  return [
    ['uuid', noderole.uuid],
    ['role', noderole.role],
    ['server', labelOf(noderole.server_uuid)],
    ['deployment', noderole.deployment],
    ['state', `${noderole.state} since ${shortTime(noderole.state_since)}`],
    ['why', noderole.explanation],
    ['error', error && `${error.code}: ${error.message}`],
    ['runs', noderole.run_count],
    ['failures', noderole.failures || undefined],
    ['task', run?.task_id],
    ['parents', named(parents)],
    ['children', named(children)],
    ['data', textOf(noderole.data)],
    ['proposed', noderole.proposed_data && textOf(noderole.proposed_data)],
    ['wall', textOf(noderole.wall)],
  ];
}

const textOf = (data: JsonObject): string | undefined =>
  Object.keys(data).length === 0 ? undefined : JSON.stringify(data);

async function set({ client, output }: Context, [name, text]: readonly unknown[]): Promise<void> {
  const data = parseData(String(text));
  const uuid = await findNoderole(client, String(name));
  const noderole = await client.ask(annealerContracts.UpdateNoderole, { uuid, data });
  if (output.json) output.document(noderole);
  else output.note(`Proposed; to apply it: cnapi deployment commit ${noderole.deployment}`);
}

/** @throws UsageError */
function parseData(text: string): JsonObject {
  let data: unknown;
  try {
    data = JSON.parse(text);
  } catch (error) {
    throw new UsageError(`The data is not JSON: ${(error as Error).message}`, { cause: error });
  }
  if (!isJsonObject(data)) throw new UsageError('The data is not a JSON object, such as {"port": 80}');
  return data;
}

async function changeEach(
  { client, output }: Context,
  names: unknown,
  contract: typeof annealerContracts.RetryNoderole | typeof annealerContracts.ProposeNoderole,
): Promise<number> {
  const { results, exitCode } = await forEach(output, names as string[], async (name) => {
    const noderole = await client.ask(contract, { uuid: await findNoderole(client, name) });
    if (!output.json) output.line(`${noderole.uuid} ${noderole.state}`);
    return noderole;
  });
  if (output.json) output.document(results);
  return exitCode;
}
