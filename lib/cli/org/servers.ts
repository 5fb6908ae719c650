/** `cnapi org server`: the servers of an organization. Part of org.ts. */
import { Command } from 'commander';
import {
  type Binding,
  bindings,
  type Group,
  groups,
  type Organization,
} from '../../protocol/api/documents/organizations.ts';
import { type CommandRunner, collectValues } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { forEach } from '../invocation/each.ts';
import { findServers } from '../lookup/find.ts';
import { listDocuments } from '../lookup/find-document.ts';
import { findGroup } from '../lookup/owners.ts';
import { UsageError } from '../terminal/command-errors.ts';
import { sortByName } from '../terminal/name-order.ts';
import type { Column } from '../terminal/table.ts';
import { ofOrganization, organizationOf } from './organization-argument.ts';

const SERVERS = 'uuids or hostnames';

export function serverBindingCommand(runner: CommandRunner): Command {
  const command = new Command('server').description('Manages which servers belong to an organization.');
  ofOrganization(command.command('add'))
    .description('Binds servers to an organization. Push jobs know them by their hostnames.')
    .argument('<server...>', SERVERS)
    .option(
      '--group <group>',
      'only members of this group of users and clients may run push jobs on them (default: all who may create jobs)',
      collectValues,
    )
    .action(
      runner.action((context, [name, given], { group }: { group?: string[] }) =>
        bind(context, name, { servers: given as string[], groups: group }),
      ),
    );
  ofOrganization(command.command('list'))
    .description('Lists the servers of an organization.')
    .action(runner.action((context, [name]) => list(context, name)));
  ofOrganization(command.command('remove'))
    .description('Removes servers from an organization.')
    .argument('<server...>', SERVERS)
    .action(runner.action((context, [name, given]) => unbind(context, name, given as string[])));
  return command;
}

async function bind(
  context: Context,
  name: unknown,
  { servers, groups: names }: { servers: readonly string[]; groups: string[] | undefined },
): Promise<number> {
  const { client, output, random } = context;
  const organization = await organizationOf(context, name);
  const needed = await Array.fromAsync(
    names ?? [],
    async (groupText) => (await findGroup(client, organization, groupText)).uuid,
  );
  const hostnames = new Map((await findServers(client, servers)).map((server) => [server.uuid, server.hostname]));
  const bound = new Map((await bindingsOf(context, organization)).map((binding) => [binding.server_uuid, binding]));
  for (const [uuid, hostname] of hostnames)
    if (!hasGroups(bound.get(uuid), names && needed))
      throw new UsageError(
        `${hostname ?? uuid} belongs to ${organization.name} already, with other groups: remove it first`,
      );
  const { results, exitCode } = await forEach(output, [...hostnames.keys()], async (server_uuid) => {
    const present = bound.get(server_uuid);
    if (present !== undefined) {
      output.note(`${hostnames.get(server_uuid) ?? server_uuid} belongs to ${organization.name} already`);
      return present;
    }
    return client.documents(bindings.contracts.create, {
      uuid: random.uuid(),
      organization: organization.uuid,
      server_uuid,
      ...(names !== undefined && { groups: needed }),
    });
  });
  if (output.json) output.document(results);
  return exitCode;
}

/**
 * Whether the binding of a server has exactly these groups; true if the server has no binding yet.
 */
function hasGroups(present: Binding | undefined, wanted: readonly string[] | undefined): boolean {
  if (present === undefined) return true;
  return JSON.stringify([...(present.groups ?? [])].sort()) === JSON.stringify([...(wanted ?? [])].sort());
}

async function unbind(context: Context, name: unknown, given: readonly string[]): Promise<number> {
  const { client, output } = context;
  const organization = await organizationOf(context, name);
  const found: string[] = [];
  for (const { uuid: server_uuid, hostname } of await findServers(client, given)) {
    const [binding] = await listDocuments(client, bindings, { organization: organization.uuid, server_uuid }, 1);
    if (binding === undefined) throw new UsageError(`${hostname} does not belong to ${organization.name}`);
    found.push(String(binding.uuid));
  }
  const { exitCode } = await forEach(output, found, (uuid) => client.delete(bindings.contracts.delete, { uuid }));
  return exitCode;
}

interface Row {
  name: string;
  server_uuid: string;
  groups: string | undefined;
}

const COLUMNS: readonly Column<Row>[] = [
  { head: 'NODE', of: ({ name }) => name, shrinks: true },
  { head: 'SERVER', of: ({ server_uuid }) => server_uuid },
  { head: 'GROUPS', of: ({ groups: names }) => names, shrinks: true },
];

async function list(context: Context, name: unknown): Promise<void> {
  const { client, output } = context;
  const organization = await organizationOf(context, name);
  const bindings = await bindingsOf(context, organization);
  if (output.json) return output.document(bindings);
  const hostnames = new Map<string, string>();
  if (bindings.length > 0)
    for await (const { uuid, hostname } of client.allServers({ fields: 'uuid,hostname' }))
      hostnames.set(uuid, hostname ?? '');
  const named = (await listDocuments(client, groups, { organization: organization.uuid })) as unknown as Group[];
  const nameOf = new Map(named.map((group) => [group.uuid, group.name]));
  const rows = bindings.map(({ server_uuid, groups: needed }) => ({
    name: hostnames.get(server_uuid) ?? '',
    server_uuid,
    groups: needed?.map((uuid) => nameOf.get(uuid) ?? uuid).join(', '),
  }));
  output.table(COLUMNS, sortByName(rows));
  if (bindings.length === 0) output.note(`${organization.name} has no servers`);
}

async function bindingsOf({ client }: Context, { uuid }: Organization): Promise<Binding[]> {
  return (await listDocuments(client, bindings, { organization: uuid })) as unknown as Binding[];
}
