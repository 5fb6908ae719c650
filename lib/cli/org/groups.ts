/** `cnapi org group`: groups of users and clients. Part of org.ts. */
import { Command } from 'commander';
import { clients, type Group, groups, listContracts, users } from '../../protocol/api/documents/organizations.ts';
import { createDocument, deleteDocument, fieldColumn, printDocuments, UUID_COLUMN } from '../documents/documents.ts';
import { type CommandRunner, collectValues } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { listDocuments } from '../lookup/find-document.ts';
import { findGroup, findMembers, type MemberNames } from '../lookup/owners.ts';
import { UsageError } from '../terminal/command-errors.ts';
import { sortByName } from '../terminal/name-order.ts';
import { ofOrganization, organizationOf } from './organization-argument.ts';

const GROUP = 'its name or uuid';

export function groupCommand(runner: CommandRunner): Command {
  const command = new Command('group').description(
    'Manages groups of users and clients: who may do what. Groups of servers: cnapi group.',
  );
  withMembers(ofOrganization(command.command('create')))
    .description('Creates a group of users and clients, and prints its uuid.')
    .argument('<name>', 'pushy_job_readers, pushy_job_writers and admins have a meaning')
    .action(
      runner.action(async (context, [given, name], options: MemberNames) => {
        const organization = await organizationOf(context, given);
        const members = await findMembers(context.client, organization, options);
        await createDocument(context, groups, { organization: organization.uuid, name, ...members });
      }),
    );
  ofOrganization(command.command('list'))
    .description('Lists the groups of users and clients of an organization.')
    .action(
      runner.action(async (context, [name]) => {
        const filter = { organization: (await organizationOf(context, name)).uuid };
        const columns = [fieldColumn('GROUP', 'name'), UUID_COLUMN];
        printDocuments(context, sortByName(await listDocuments(context.client, groups, filter)), {
          plural: 'groups of users and clients',
          columns,
        });
      }),
    );
  ofOrganization(command.command('get'))
    .description('Shows the members of a group of users and clients.')
    .argument('<group>', GROUP)
    .action(runner.action((context, [organization, name]) => show(context, organization, name)));
  for (const [change, about] of [
    ['add', 'Adds members to a group of users and clients.'],
    ['remove', 'Removes members from a group of users and clients.'],
  ] as const)
    withMembers(ofOrganization(command.command(change)))
      .description(about)
      .argument('<group>', GROUP)
      .action(
        runner.action(async (context, [given, name], options: MemberNames) => {
          if (MEMBERS.every((name) => options[name] === undefined))
            throw new UsageError(
              `Which members? Give ${MEMBERS.map((name) => `--${name}`).join(', ')}, or several of them`,
            );
          const organization = await organizationOf(context, given);
          const { uuid } = await findGroup(context.client, organization, String(name));
          const members = await findMembers(context.client, organization, options);
          await context.client.documents(listContracts.ChangeGroupMembers, { uuid, change, ...members });
        }),
      );
  ofOrganization(command.command('delete'))
    .description('Deletes a group of users and clients, not its members.')
    .argument('<group>', GROUP)
    .action(
      runner.action(async (context, [given, name]) => {
        const organization = await organizationOf(context, given);
        await deleteDocument(context, groups, await findGroup(context.client, organization, String(name)));
      }),
    );
  return command;
}

const MEMBERS = ['user', 'client', 'group'] as const;

const withMembers = (command: Command): Command =>
  command
    .option('--user <user>', 'a user', collectValues)
    .option('--client <client>', 'a client of the organization', collectValues)
    .option('--group <group>', 'a group whose members are members', collectValues);

/** Shows a group with the names of its members; deleted members are left out. */
async function show(context: Context, given: unknown, name: unknown): Promise<void> {
  const { client, output } = context;
  const organization = await organizationOf(context, given);
  const group = await findGroup(client, organization, String(name));
  if (output.json) return output.document(group);
  const namesOf = async (kind: 'users' | 'clients' | 'groups') => {
    const wanted = new Set(group[kind]);
    if (wanted.size === 0) return undefined;
    const noun = { users, clients, groups }[kind];
    const filter = kind === 'users' ? {} : { organization: organization.uuid };
    const listed = (await listDocuments(client, noun, filter)) as unknown as Group[];
    return sortByName(listed.filter(({ uuid }) => wanted.has(uuid)))
      .map((document) => document.name)
      .join(', ');
  };
  output.facts([
    ['uuid', group.uuid],
    ['name', group.name],
    ['users', await namesOf('users')],
    ['clients', await namesOf('clients')],
    ['groups', await namesOf('groups')],
  ]);
}
