/** `cnapi org`: organizations, who may act in them, and their servers. */
import { Command } from 'commander';
import { bindings, clients, groups, organizations } from '../../protocol/api/documents/organizations.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import { createDocument, deleteDocument, fieldColumn, printDocuments, UUID_COLUMN } from '../documents/documents.ts';
import { type CommandRunner, collectValues, withExamples } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { listDocuments } from '../lookup/find-document.ts';
import { sortByName } from '../terminal/name-order.ts';
import { groupCommand } from './groups.ts';
import { keyCommand } from './keys.ts';
import { ofOrganization, organizationOf } from './organization-argument.ts';
import { serverBindingCommand } from './servers.ts';
import { clientCommand, userCommand, usersIn } from './users.ts';

export function orgCommand(runner: CommandRunner): Command {
  const command = new Command('org').description(
    'Manages organizations: who may run push jobs, and on which servers. Changes need an admin.',
  );
  command.addCommand(createCommand(runner));
  command
    .command('list')
    .description('Lists organizations.')
    .action(
      runner.action(async (context) => {
        const listed = await listDocuments(context.client, organizations, {});
        const columns = [fieldColumn('ORGANIZATION', 'name'), UUID_COLUMN, fieldColumn('FULL NAME', 'full_name')];
        printDocuments(context, sortByName(listed), { plural: 'organizations', columns });
      }),
    );
  ofOrganization(command.command('get'))
    .description('Shows an organization, its users, clients and groups, and how many servers it has.')
    .action(runner.action((context, [name]) => show(context, name)));
  ofOrganization(command.command('delete'))
    .description('Deletes an organization. What belongs to it is deleted within an hour.')
    .action(
      runner.action(async (context, [name]) =>
        deleteDocument(context, organizations, await organizationOf(context, name)),
      ),
    );
  for (const part of [userCommand, clientCommand, keyCommand, groupCommand, serverBindingCommand])
    command.addCommand(part(runner));
  for (const leaf of leavesOf(command)) withExamples(leaf, EXAMPLES[pathWithin(command, leaf)] ?? []);
  return command;
}

/** The examples in the help of each command, by the command's words after `org`. */
const EXAMPLES: Readonly<Record<string, readonly string[]>> = {
  create: ['cnapi org create acme', 'cnapi org create acme --allow chef-client --allow uptime'],
  list: ['cnapi org list'],
  get: ['cnapi org get acme'],
  delete: ['cnapi org delete acme'],
  'user create': ['cnapi org user create alice --org acme'],
  'user list': ['cnapi org user list acme'],
  'user add': ['cnapi org user add acme alice bob'],
  'user remove': ['cnapi org user remove acme bob'],
  'user delete': ['cnapi org user delete bob'],
  'client create': ['cnapi org client create acme web-1'],
  'client list': ['cnapi org client list acme'],
  'client delete': ['cnapi org client delete acme web-1'],
  'key create': [
    'cnapi org key create alice --file alice.pem',
    'cnapi org key create acme/web-1 --name b --public-key pub.pem --expires 90d',
  ],
  'key list': ['cnapi org key list alice'],
  'key delete': ['cnapi org key delete acme/web-1 spare'],
  'group create': ['cnapi org group create acme pushy_job_writers --user alice'],
  'group list': ['cnapi org group list acme'],
  'group get': ['cnapi org group get acme admins'],
  'group add': ['cnapi org group add acme admins --user alice --client web-1'],
  'group remove': ['cnapi org group remove acme admins --user alice'],
  'group delete': ['cnapi org group delete acme admins'],
  'server add': ['cnapi org server add acme web-1 web-2', 'cnapi org server add acme db-1 --group dbas'],
  'server list': ['cnapi org server list acme'],
  'server remove': ['cnapi org server remove acme web-2'],
};

const leavesOf = (command: Command): Command[] =>
  command.commands.length === 0 ? [command] : command.commands.flatMap(leavesOf);

const pathWithin = (top: Command, command: Command): string =>
  command.parent === null || command.parent === top
    ? command.name()
    : `${pathWithin(top, command.parent)} ${command.name()}`;

async function show(context: Context, name: unknown): Promise<void> {
  const { client, output } = context;
  const organization = await organizationOf(context, name);
  const within = { organization: organization.uuid };
  const namesOf = (documents: readonly JsonObject[]) => sortByName(documents).map((document) => String(document.name));
  const members = {
    users: namesOf(await usersIn(client, organization)),
    clients: namesOf(await listDocuments(client, clients, within)),
    groups: namesOf(await listDocuments(client, groups, within)),
    servers: (await listDocuments(client, bindings, within)).length,
  };
  if (output.json) return output.document({ ...organization, ...members });
  const { users, clients: programs, groups: named, servers } = members;
  output.facts([
    ...Object.entries(organization),
    ['users', users.join(', ')],
    ['clients', programs.join(', ')],
    ['groups', named.join(', ')],
    ['servers', servers],
  ]);
}

interface CreateOptions {
  fullName?: string;
  allow?: string[];
}

function createCommand(runner: CommandRunner): Command {
  return new Command('create')
    .description('Creates an organization and prints its uuid.')
    .argument('<name>', 'lower-case letters, digits, _ and -')
    .option('--full-name <text>', 'a name for people to read')
    .option(
      '--allow <command>',
      'a command that its push jobs may run, or its beginning and * (default: any command)',
      collectValues,
    )
    .action(
      runner.action((context, [name], { fullName, allow }: CreateOptions) =>
        createDocument(context, organizations, { name, full_name: fullName, allowed_commands: allow }),
      ),
    );
}
