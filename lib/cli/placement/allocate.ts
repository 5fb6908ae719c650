/** `cnapi allocate` and `cnapi capacity`: a server for a VM, and how much room servers have. */
import { Command } from 'commander';
import { definedFields } from '../../platform/defined-fields.ts';
import { type Allocation, placementContracts } from '../../protocol/api/placement.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import { type CommandRunner, collectValues, withExamples } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { findServers, serverLabels } from '../lookup/find.ts';
import type { Column } from '../terminal/table.ts';
import { parseFields } from '../vms/vm-fields.ts';

interface AllocateOptions {
  server?: string[];
  nicTag?: string[];
  explain?: boolean;
}

type FunnelRow = NonNullable<Allocation['funnel']>[number];

const NOBODY = '00000000-0000-0000-0000-000000000000';

export function allocateCommand(runner: CommandRunner): Command {
  const command = new Command('allocate')
    .description(
      'Chooses a server for a VM and holds the room there for some minutes, until the VM is created. Prints the uuid of the server.',
    )
    .argument(
      '<field=value...>',
      'fields of the VM: ram, quota (MiB, default 10240), cpu_cap (100 is one core, the default), owner_uuid, traits, locality; a value may be JSON',
    )
    .option(
      '--server <server>',
      'only this server: uuid, the beginning of one, or hostname; may be repeated',
      collectValues,
    )
    .option('--nic-tag <tag>', 'a NIC tag that the server must have; may be repeated', collectValues)
    .option('--explain', 'show what each step of the choice dropped and why, and hold nothing')
    .action(
      runner.action((context, [words], options: AllocateOptions) =>
        allocate(context, [words].flat().map(String), options),
      ),
    );
  return withExamples(command, [
    'cnapi allocate ram=1024 quota=10240 cpu_cap=100',
    'cnapi allocate vm_uuid=UUID ram=1024 --server web-1 --server web-2',
    'cnapi allocate ram=524288 --explain',
  ]);
}

export function capacityCommand(runner: CommandRunner): Command {
  const command = new Command('capacity')
    .description('Shows how much room servers have for VMs, less what is held for VMs that are about to be created.')
    .argument('[server...]', 'uuids, beginnings of them, or hostnames (default: all servers)')
    .action(runner.action((context, [names]) => capacity(context, [names ?? []].flat().map(String))));
  return withExamples(command, ['cnapi capacity', 'cnapi capacity web-1']);
}

async function allocate(
  context: Context,
  words: readonly string[],
  { server: names = [], nicTag: nic_tags = [], explain = false }: AllocateOptions,
): Promise<number> {
  const { client, output, random } = context;
  const vm = { vm_uuid: random.uuid(), owner_uuid: NOBODY, ...parseFields(words) };
  const servers = names.length === 0 ? {} : { servers: (await findServers(client, names)).map(({ uuid }) => uuid) };
  const params = { vm, image: {}, nic_tags, ...servers, ...(explain && { explain }) };
  const allocation = await client.ask(placementContracts.SelectServer, params);
  const { server, funnel = [] } = allocation;
  if (output.json) {
    output.document({ vm_uuid: vm.vm_uuid, ...allocation });
    return server === null ? 1 : 0;
  }
  if (explain) output.table(FUNNEL, funnel);
  if (server === null) {
    output.complain('no server is left');
    return 1;
  }
  if (explain) output.note(`${server.hostname ?? ''} would be chosen`);
  else output.note(`${server.hostname ?? ''} holds the room for this VM:\n  ${createCommand(server, vm)}`);
  output.line(server.uuid);
  return 0;
}

/** Uses the field names of `cnapi vm create`, whose quota is in GiB. */
function createCommand({ uuid, hostname }: { uuid: string; hostname?: unknown }, vm: JsonObject): string {
  const { vm_uuid, owner_uuid, ram, quota, cpu_cap } = vm;
  const fields = {
    uuid: vm_uuid,
    ...(owner_uuid !== NOBODY && { owner_uuid }),
    max_physical_memory: ram,
    ...(typeof quota === 'number' && { quota: Math.ceil(quota / 1024) }),
    ...definedFields({ cpu_cap }),
    image_uuid: 'UUID',
  };
  const words = Object.entries(fields).map(([name, value]) => `${name}=${value}`);
  return ['cnapi vm create', typeof hostname === 'string' && hostname !== '' ? hostname : uuid, ...words].join(' ');
}

const FUNNEL: readonly Column<FunnelRow>[] = [
  { head: 'STEP', of: ({ step }) => step },
  { head: 'SERVERS', of: ({ before }) => String(before) },
  { head: 'DROPPED', of: ({ dropped }) => String(dropped) },
  { head: 'SUCH AS', of: (row) => exampleOf(row), shrinks: true },
];

function exampleOf({ dropped, reasons }: FunnelRow): string {
  const [first] = Object.entries(reasons);
  return dropped === 0 || first === undefined ? '' : `${first[0]} ${first[1]}`;
}

async function capacity({ client, output }: Context, names: readonly string[]): Promise<void> {
  const servers = names.length === 0 ? undefined : (await findServers(client, names)).map(({ uuid }) => uuid);
  const capacities = await client.ask(placementContracts.ServerCapacity, servers === undefined ? {} : { servers });
  if (output.json) return output.document(capacities);
  const uuids = [...Object.keys(capacities.capacities), ...Object.keys(capacities.errors)];
  const labelOf = await serverLabels(
    client,
    uuids.map((server_uuid) => ({ server_uuid })),
  );
  const rows = [
    ...Object.entries(capacities.capacities).map(([uuid, room]) => ({ uuid, ...room, problem: '' })),
    ...Object.entries(capacities.errors).map(([uuid, problem]) => ({ uuid, cpu: '', ram: '', disk: '', problem })),
  ];
  output.table(
    [
      { head: 'SERVER', of: ({ uuid }) => labelOf(uuid) },
      { head: 'CPU', of: ({ cpu }) => String(cpu) },
      { head: 'MEMORY MIB', of: ({ ram }) => String(ram) },
      { head: 'DISK MIB', of: ({ disk }) => String(disk) },
      { head: 'WHY NOT', of: ({ problem }) => problem, shrinks: true },
    ],
    rows,
  );
}
