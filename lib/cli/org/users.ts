/** `cnapi org user` and `cnapi org client`: who may act in organizations. Part of org.ts. */
import { Command } from 'commander';
import type { CnapiClient } from '../../client/client.ts';
import { clients, listContracts, type Organization, users } from '../../protocol/api/documents/organizations.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import { createDocument, deleteDocument, fieldColumn, printDocuments, UUID_COLUMN } from '../documents/documents.ts';
import { type CommandRunner, collectValues } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { forEach } from '../invocation/each.ts';
import { listDocuments } from '../lookup/find-document.ts';
import { findClient, findUser } from '../lookup/owners.ts';
import { sortByName } from '../terminal/name-order.ts';
import { ofOrganization, organizationOf } from './organization-argument.ts';

const NAME = 'as requests give it';

export function userCommand(runner: CommandRunner): Command {
  const command = new Command('user').description('Manages users, who may act in several organizations.');
  command
    .command('create')
    .description('Creates a user and prints its uuid.')
    .argument('<name>', NAME)
    .option('--org <organization>', 'an organization in which it may act', collectValues)
    .action(runner.action((context, [name], options: { org?: string[] }) => createUser(context, name, options.org)));
  command
    .command('list')
    .description('Lists users.')
    .argument('[organization]', 'only those who may act in it')
    .action(runner.action((context, [name]) => listUsers(context, name)));
  for (const [change, about] of [
    ['add', 'Lets users act in an organization.'],
    ['remove', 'No longer lets users act in an organization.'],
  ] as const)
    ofOrganization(command.command(change))
      .description(about)
      .argument('<user...>', 'names or uuids')
      .action(
        runner.action((context, [name, given]) => changeUsers(context, change, { name, given: given as string[] })),
      );
  command
    .command('delete')
    .description('Deletes a user, in all organizations.')
    .argument('<name>', 'its name or uuid')
    .action(
      runner.action(async (context, [name]) =>
        deleteDocument(context, users, await findUser(context.client, String(name))),
      ),
    );
  return command;
}

export function clientCommand(runner: CommandRunner): Command {
  const command = new Command('client').description('Manages clients: programs of one organization.');
  ofOrganization(command.command('create'))
    .description('Creates a client and prints its uuid.')
    .argument('<name>', NAME)
    .action(
      runner.action(async (context, [organization, name]) =>
        createDocument(context, clients, { organization: (await organizationOf(context, organization)).uuid, name }),
      ),
    );
  ofOrganization(command.command('list'))
    .description('Lists the clients of an organization.')
    .action(
      runner.action(async (context, [name]) => {
        const filter = { organization: (await organizationOf(context, name)).uuid };
        const columns = [fieldColumn('CLIENT', 'name'), UUID_COLUMN];
        const listed = await listDocuments(context.client, clients, filter);
        printDocuments(context, sortByName(listed), { plural: 'clients', columns });
      }),
    );
  ofOrganization(command.command('delete'))
    .description('Deletes a client.')
    .argument('<name>', 'its name or uuid')
    .action(
      runner.action(async (context, [organization, name]) => {
        const client = await findClient(context.client, await organizationOf(context, organization), String(name));
        await deleteDocument(context, clients, client);
      }),
    );
  return command;
}

async function createUser(context: Context, name: unknown, names: readonly string[] = []): Promise<void> {
  const organizations = await Array.fromAsync(names, async (one) => (await organizationOf(context, one)).uuid);
  await createDocument(context, users, { name, organizations });
}

async function changeUsers(
  context: Context,
  change: 'add' | 'remove',
  { name, given }: { name: unknown; given: readonly string[] },
): Promise<number> {
  const { client, output } = context;
  const organizations = [(await organizationOf(context, name)).uuid];
  const uuids = await Array.fromAsync(given, async (one) => (await findUser(client, one)).uuid);
  const { exitCode } = await forEach(output, uuids, (uuid) =>
    client.documents(listContracts.ChangeUserOrganizations, { uuid, change, organizations }),
  );
  return exitCode;
}

async function listUsers(context: Context, name: unknown): Promise<void> {
  const { client } = context;
  const organization = name === undefined ? undefined : await organizationOf(context, name);
  const found =
    organization === undefined ? await listDocuments(client, users, {}) : await usersIn(client, organization);
  const plural = organization === undefined ? 'users' : `users in ${organization.name}`;
  printDocuments(context, sortByName(found), { plural, columns: [fieldColumn('USER', 'name'), UUID_COLUMN] });
}

/** Users are not indexed by their organizations, so all are read. */
export async function usersIn(client: CnapiClient, { uuid }: Organization): Promise<JsonObject[]> {
  const all = await listDocuments(client, users, {});
  return all.filter(({ organizations }) => (organizations as string[]).includes(uuid));
}
