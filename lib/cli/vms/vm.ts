/**
 * `cnapi vm`: lists VMs, and creates, changes and deletes them by tasks of their servers' agents.
 */
import { Command } from 'commander';
import { ApiError } from '../../client/client-errors.ts';
import type { Contract } from '../../protocol/api/contract/contract.ts';
import { isUuid } from '../../protocol/api/contract/rules.ts';
import { type StoredVm, vmContracts } from '../../protocol/api/vms.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import { vm as reportedVm, VM_STATES } from '../../protocol/vms.ts';
import { type CommandRunner, collectValues, withExamples } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { findServer, findServerUuid, serverLabels } from '../lookup/find.ts';
import { EXIT, WithheldError } from '../terminal/command-errors.ts';
import { shortTime } from '../terminal/duration.ts';
import type { Column } from '../terminal/table.ts';
import { vmConsoleCommand } from './vm-console.ts';
import { vmCpCommand } from './vm-cp.ts';
import { vmExecCommand } from './vm-exec.ts';
import { buildVmFields, checkFields, type FieldOptions, parseFields } from './vm-fields.ts';
import { vmLogsCommand } from './vm-logs.ts';
import { findVm, listVms, VM_TEXT } from './vm-lookup.ts';
import { noteEarlyEnd, warnOfNamesakes } from './vm-notes.ts';
import { type StopOptions, signalParams, stopParams, TIMEOUT_TEXT, waitingForStop } from './vm-options.ts';
import { vmPortForwardCommand } from './vm-port-forward.ts';
import { provision } from './vm-provision.ts';
import { reportTask } from './vm-task.ts';

interface DetachOptions {
  detach?: boolean;
}

interface ListOptions {
  server?: string;
  owner?: string;
  image?: string;
  state?: string;
  alias?: string;
}

/** One command for one route. */
interface Action {
  contract: Contract;
  /** The beginning of the sentence for its success, before the name of the VM. */
  done: string;
  /** The end of the sentence for its failure, after the name of the VM. */
  failed: string;
  params?: JsonObject;
  waiting?: string | undefined;
  /** Called before the task is created. @throws UsageError, RefusedError */
  check?(vm: StoredVm): void;
}

const VM = ['<vm>', VM_TEXT] as const;
const FIELDS =
  'fields of the VM, such as alias=web, max_physical_memory=256 (MiB), quota=10 (GiB) or cpu_cap=100 (one core); a value may be JSON';

export function vmCommand(runner: CommandRunner): Command {
  const command = new Command('vm').description(
    'Lists, creates, changes and deletes VMs on any server, and runs programs in them.',
  );
  const add = (parent: Command, name: string, about: string, example: string) => {
    const words = parent === command ? ['vm', name] : ['vm', parent.name(), name];
    return withExamples(parent.command(name).description(about), [['cnapi', ...words, example].join(' ').trim()]);
  };
  const addTask = (parent: Command, name: string, about: string, example: string) =>
    add(parent, name, `${about} Waits for the end.`, example);
  const detachable = (command: Command) => command.option('-d, --detach', "do not wait; print the task's id");
  /** Adds a command for one VM, without parameters of its own. */
  const addSimple = (name: string, about: string, action: Action) =>
    detachable(addTask(command, name, about, 'web').argument(...VM)).action(
      runner.action((context, [vm], options: DetachOptions) => act(context, String(vm), action, options)),
    );

  add(command, 'list', 'Lists the VMs of all servers, as their agents have reported them.', '--state running')
    .option('--server <server>', 'uuid, the beginning of one, or hostname')
    .option('--owner <uuid>', 'only those of this owner')
    .option('--image <uuid>', 'only those made from this image')
    .option('--state <state>', 'such as running, stopped, provisioning or failed')
    .option('--alias <alias>', 'the whole alias, or its beginning and *')
    .action(runner.action((context, _, options) => list(context, options as ListOptions)));
  add(command, 'get', 'Shows a VM as its agent knows it at the moment.', 'web')
    .argument(...VM)
    .action(runner.action((context, [vm]) => get(context, String(vm))));
  detachable(
    addTask(
      command,
      'create',
      'Creates a VM and starts it: on this server or, without one, where placement finds room.',
      'web-1 image_uuid=UUID alias=web',
    )
      .argument('[server]', 'uuid, the beginning of one, or hostname; without it a workflow job creates the VM')
      .argument('[field=value...]', FIELDS)
      .option(
        '--file <file>',
        'read fields from a JSON object in FILE, or - for stdin; secrets do not belong in arguments',
      )
      .option(
        '--cmd <command>',
        'its first program: a JSON list of words, or a text for its /bin/sh (default: that of the image)',
      )
      .option('--tty', 'run that program in a terminal, to which cnapi vm console attaches')
      .option('--env <name=value>', 'a variable of that program; may be repeated', collectValues),
  ).action(
    runner.action((context, [first, others], options: DetachOptions & FieldOptions) => {
      const words = [first, ...(others as string[])].filter((word) => word !== undefined).map(String);
      const [server = '='] = words;
      return server.includes('=')
        ? provision(context, words, options)
        : create(context, { server, fields: words.slice(1) }, options);
    }),
  );
  addSimple('start', 'Starts a VM.', {
    contract: vmContracts.StartVm,
    done: 'started',
    failed: 'could not be started',
  });
  const stopping = (command: Command) =>
    detachable(command).option('--force', 'kill it immediately').option('--timeout <duration>', TIMEOUT_TEXT);
  for (const [name, about, contract, done] of [
    ['stop', 'Stops a VM.', vmContracts.StopVm, 'stopped'],
    ['reboot', 'Stops a VM and starts it again.', vmContracts.RebootVm, 'rebooted'],
  ] as const)
    stopping(addTask(command, name, about, 'web --timeout 30s').argument(...VM)).action(
      runner.action((context, [vm], options: StopOptions & DetachOptions) => {
        const params = stopParams(options);
        const waiting = waitingForStop(String(vm), params);
        return act(context, String(vm), { contract, done, failed: `could not be ${done}`, params, waiting }, options);
      }),
    );
  detachable(addTask(command, 'kill', 'Sends a signal to the first process of a VM.', 'web --signal TERM'))
    .argument(...VM)
    .option('--signal <name>', 'name or number (default: KILL)')
    .action(
      runner.action((context, [vm], options: DetachOptions & { signal?: string }) => {
        const about = { done: 'sent a signal to', failed: 'could not be sent a signal' };
        const params = signalParams(options);
        return act(context, String(vm), { contract: vmContracts.KillVm, ...about, params }, options);
      }),
    );
  detachable(addTask(command, 'update', 'Changes a VM.', 'web max_physical_memory=512'))
    .argument(...VM)
    .argument('<field=value...>', FIELDS)
    .action(
      runner.action((context, [vm, fields], options: DetachOptions) => {
        const params = parseFields(fields as string[]);
        const check = ({ brand }: StoredVm) => checkFields(params, { action: 'update', brand });
        const about = { done: 'updated', failed: 'could not be updated' };
        return act(context, String(vm), { contract: vmContracts.UpdateVm, ...about, params, check }, options);
      }),
    );
  detachable(addTask(command, 'delete', 'Destroys a VM with all that it has stored.', 'web').argument(...VM)).action(
    runner.action((context, [vm], options: DetachOptions) => remove(context, String(vm), options)),
  );

  command.addCommand(vmExecCommand(runner));
  command.addCommand(vmConsoleCommand(runner));
  command.addCommand(vmCpCommand(runner));
  command.addCommand(vmLogsCommand(runner));
  command.addCommand(vmPortForwardCommand(runner));

  const snapshot = withExamples(
    command.command('snapshot').description('Makes, lists, restores and deletes snapshots.'),
    ['cnapi vm snapshot create web before-upgrade'],
  );
  add(snapshot, 'list', 'Lists the snapshots of a VM.', 'web')
    .argument(...VM)
    .action(runner.action((context, [vm]) => listSnapshots(context, String(vm))));
  const { CreateVmSnapshot, RollbackVmSnapshot, DeleteVmSnapshot } = vmContracts;
  for (const [name, about, contract, done, failed] of [
    ['create', 'Makes a snapshot of a VM.', CreateVmSnapshot, 'made a snapshot of', 'got no snapshot'],
    ['rollback', 'Sets a VM back to a snapshot.', RollbackVmSnapshot, 'rolled back', 'could not be rolled back'],
    ['delete', 'Deletes a snapshot of a VM.', DeleteVmSnapshot, 'deleted a snapshot of', 'kept its snapshot'],
  ] as const)
    detachable(addTask(snapshot, name, about, 'web before-upgrade').argument(...VM))
      .argument('<name>', 'of the snapshot')
      .action(
        runner.action((context, [vm, text], options: DetachOptions) =>
          act(context, String(vm), { contract, done, failed, params: { snapshot_name: String(text) } }, options),
        ),
      );
  return withExamples(command, [
    'cnapi vm list --server web-1',
    'cnapi vm create web-1 image_uuid=UUID alias=web',
    'cnapi vm create image_uuid=UUID alias=web',
  ]);
}

async function list({ client, output }: Context, { server, owner, image, state, alias }: ListOptions): Promise<void> {
  const vms = await listVms(client, {
    server_uuid: server === undefined ? undefined : await findServerUuid(client, server),
    owner_uuid: owner,
    image_uuid: image,
    state,
    alias,
  });
  if (output.json) return output.document(vms);
  const labelOf = await serverLabels(client, vms);
  const columns: Column<StoredVm>[] = [
    { head: 'UUID', of: ({ uuid }) => uuid, abbreviates: true },
    { head: 'ALIAS', of: (vm) => vm.alias, shrinks: true },
    { head: 'STATE', of: (vm) => vm.state },
    { head: 'MEMORY', of: ({ max_physical_memory: mib }) => mib && `${mib} MiB` },
    { head: 'SERVER', of: ({ server_uuid }) => labelOf(server_uuid), shrinks: true },
    { head: 'SERVER STATUS', of: ({ server_status }) => server_status },
  ];
  output.table(columns, vms);
  if (vms.length > 0) return;
  const isKnown = state === undefined || VM_STATES.some((one) => one === state);
  output.note(
    `There are no such VMs${isKnown ? '' : `; the states are ${VM_STATES.join(', ')}, and those of agents of Triton`}`,
  );
}

async function get({ client, output }: Context, text: string): Promise<void> {
  const stored = await findVm(client, text);
  const { server_uuid, server_status, as_of } = stored;
  if (server_status === 'unknown') output.note(`The server does not answer; the VM as of ${as_of ?? 'its creation'}`);
  const vm =
    server_status === 'unknown' ? stored : await client.ask(vmContracts.GetVm, { server_uuid, vm_uuid: stored.uuid });
  if (output.json) return output.document(vm);
  output.facts([['server', server_uuid], ...Object.entries(vm)]);
  if ('withheld' in vm && vm.withheld === true)
    output.note('its metadata, tags, network and snapshots are shown only to the role operator and above');
}

/** @throws WithheldError, UsageError */
async function listSnapshots({ client, output }: Context, text: string): Promise<void> {
  const { server_uuid, uuid } = await findVm(client, text);
  const vm = await client.ask(vmContracts.GetVm, { server_uuid, vm_uuid: uuid });
  if (vm.withheld === true) throw new WithheldError('The snapshots of a VM');
  const snapshots = reportedVm.shape.snapshots.parse(vm.snapshots ?? []);
  if (output.json) return output.document(snapshots);
  output.table(
    [
      { head: 'NAME', of: ({ name }) => name, shrinks: true },
      { head: 'CREATED', of: ({ created_at }) => shortTime(created_at) },
    ],
    snapshots,
  );
  if (snapshots.length === 0) output.note(`${text} has no snapshots`);
}

async function create(
  context: Context,
  { server, fields }: { server: string; fields: string[] },
  { detach = false, ...others }: DetachOptions & FieldOptions,
): Promise<number> {
  const { client, random, output } = context;
  const fieldsOfVm: JsonObject = { uuid: random.uuid(), ...(await buildVmFields(fields, others)) };
  checkFields(fieldsOfVm, { action: 'create', brand: fieldsOfVm.brand });
  const { uuid: server_uuid } = await findServer(client, server);
  const uuid = String(fieldsOfVm.uuid);
  await warnOfNamesakes(context, fieldsOfVm);
  const { id } = await client.documents(vmContracts.CreateVm, { ...fieldsOfVm, server_uuid });
  output.note(`VM ${uuid}`);
  const failed = 'the VM could not be created';
  const exitCode = await reportTask(context, { id: String(id), done: uuid, failed, detach });
  if (exitCode === EXIT.ok && !detach && fieldsOfVm.autoboot !== false) await noteEarlyEnd(context, uuid);
  return exitCode;
}

/**
 * Can be repeated: a uuid that no VM has (any more) is not an error. An alias without a VM is one.
 */
async function remove(context: Context, text: string, options: DetachOptions): Promise<number> {
  const isGone = await findVm(context.client, text).then(
    () => false,
    (error: unknown) => {
      if (isUuid(text) && error instanceof ApiError && error.code === 'ResourceNotFound') return true;
      throw error;
    },
  );
  const about = { done: 'deleted', failed: 'could not be deleted' };
  if (!isGone) return act(context, text, { contract: vmContracts.DeleteVm, ...about }, options);
  if (context.output.json) context.output.document({ uuid: text, status: 'absent' });
  else context.output.note(`There is no VM ${text}`);
  return 0;
}

async function act(
  context: Context,
  text: string,
  { contract, done, failed, params = {}, waiting, check }: Action,
  { detach = false }: DetachOptions,
): Promise<number> {
  const vm = await findVm(context.client, text);
  check?.(vm);
  const { server_uuid, uuid } = vm;
  const { id } = await context.client.documents(contract, { ...params, server_uuid, vm_uuid: uuid });
  return reportTask(context, {
    id: String(id),
    detach,
    waiting,
    done: `${done} ${text}`,
    failed: `${text} ${failed}`,
  });
}
