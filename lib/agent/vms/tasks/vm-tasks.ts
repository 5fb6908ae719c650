/**
 * The tasks of VMs, with the names, parameters and results of Triton's agent: `{vm}` for actions,
 * the VM itself for `machine_load`, `{}` for `machine_destroy`. Cancelling the task stops the
 * report, not the action; the same holds for a task that takes too long.
 */
import { z } from 'zod';
import { untilAborted } from '../../../platform/time/until-aborted.ts';
import { VM_TASK_KINDS } from '../../../protocol/vm-task-kinds.ts';
import { type Vm, vmTaskParams, vmUuid } from '../../../protocol/vms.ts';
import { NoContainersError } from '../../containers/container-errors.ts';
import { fieldErrorOf, messageOfIssue } from '../../containers/container-spec.ts';
import {
  defineTask,
  type TaskContext,
  type TaskDefinition,
  type TaskDefinitions,
} from '../../runner/task-definition.ts';
import { InvalidVmError, VmError } from '../vm-errors.ts';
import type { Vms } from '../vms.ts';

const vmParams = z.object({ uuid: vmUuid });
const MS = 1000;

/** Checks only that the parameters are an object, and names those that the API describes. */
const described = (name: keyof typeof VM_TASK_KINDS) => {
  const names = Object.keys(VM_TASK_KINDS[name].params);
  return z.looseObject(Object.fromEntries(names.map((param) => [param, z.unknown().optional()])));
};

/** Reject unknown update fields; ignoring them would report a false success. */
const UPDATES = /^(add|remove|set|update|resize)_/;
const MAX_REFUSED = 5;
const MAX_NAME_CHARS = 100;

const vmAction = <Schema extends z.ZodObject>(
  params: Schema,
  run: (vms: Vms, params: z.infer<Schema>) => Promise<Vm>,
): TaskDefinition =>
  defineTask({
    lane: 'vms',
    params,
    run: async (given, context) => ({ vm: await untilAborted(run(requireVms(context), given), context.signal) }),
  });

const vmQuery = <Schema extends z.ZodObject>(
  params: Schema,
  run: (vms: Vms, params: z.infer<Schema>) => Promise<Record<string, unknown>>,
): TaskDefinition =>
  defineTask({
    lane: 'vm-queries',
    params,
    run: (given, context) => untilAborted(run(requireVms(context), given), context.signal),
  });

export const vmTasks = {
  machine_create: vmAction(described('machine_create'), (vms, params) =>
    vms.create(parse(vmTaskParams.machine_create, params)),
  ),
  machine_load: vmQuery(vmParams, (vms, { uuid }) => vms.load(uuid)),
  machine_info: vmQuery(
    vmParams.extend({ types: z.array(z.string()).default(['all']) }),
    async (vms, { uuid, types }) => {
      const facts = await vms.running.info(uuid);
      const wanted = types.includes('all') ? Object.keys(facts) : types;
      const unknown = wanted.find((type) => !Object.hasOwn(facts, type));
      if (unknown !== undefined)
        throw new VmError(
          'NotSupported',
          `A container has no ${unknown.slice(0, MAX_NAME_CHARS)}; it has ${Object.keys(facts).join(', ')}`,
        );
      return Object.fromEntries(wanted.map((type) => [type, facts[type]]));
    },
  ),
  machine_proc: vmQuery(vmParams, async (vms, { uuid }) => ({ processes: await vms.running.processes(uuid) })),
  machine_boot: vmAction(vmTaskParams.machine_boot, (vms, { uuid, ...rest }) => vms.boot(uuid, rest)),
  machine_shutdown: vmAction(vmTaskParams.machine_shutdown, (vms, { uuid, timeout, ...rest }) =>
    vms.shutdown(uuid, { ...rest, timeoutMs: msOf(timeout) }),
  ),
  machine_reboot: vmAction(vmTaskParams.machine_reboot, (vms, { uuid, timeout, ...rest }) =>
    vms.reboot(uuid, { ...rest, timeoutMs: msOf(timeout) }),
  ),
  machine_kill: vmAction(vmTaskParams.machine_kill, (vms, { uuid, ...rest }) => vms.kill(uuid, rest)),
  machine_update: vmAction(vmParams.loose(), (vms, { uuid, ...params }) => {
    const unknown = Object.keys(params).filter(
      (name) => UPDATES.test(name) && !Object.hasOwn(vmTaskParams.machine_update.shape, name),
    );
    if (unknown.length > 0) throw new InvalidVmError(unknown.slice(0, MAX_REFUSED).map(notSupported));
    return vms.update(uuid, parse(vmTaskParams.machine_update, params));
  }),
  machine_update_nics: defineTask({
    lane: 'vms',
    params: vmTaskParams.machine_update_nics,
    run: (params, context) => untilAborted(requireVms(context).updateNetworks(params), context.signal),
  }),
  machine_reprovision: vmAction(vmTaskParams.machine_reprovision, (vms, { uuid, image_uuid }) =>
    vms.reprovision(uuid, image_uuid),
  ),
  machine_destroy: defineTask({
    lane: 'vms',
    params: vmParams,
    run: (params, context) => untilAborted(destroy(requireVms(context), params.uuid), context.signal),
  }),
  machine_create_snapshot: vmAction(vmTaskParams.machine_create_snapshot, (vms, { uuid, snapshot_name }) =>
    vms.createSnapshot(uuid, snapshot_name),
  ),
  machine_rollback_snapshot: vmAction(vmTaskParams.machine_rollback_snapshot, (vms, { uuid, snapshot_name }) =>
    vms.rollbackSnapshot(uuid, snapshot_name),
  ),
  machine_delete_snapshot: vmAction(vmTaskParams.machine_delete_snapshot, (vms, { uuid, snapshot_name }) =>
    vms.deleteSnapshot(uuid, snapshot_name),
  ),
  machine_create_image: vmAction(vmTaskParams.machine_create_image, (vms, { uuid, manifest }) =>
    vms.createImage(uuid, manifest.uuid),
  ),
} satisfies TaskDefinitions;

async function destroy(vms: Vms, uuid: string) {
  await vms.destroy(uuid);
  return {};
}

/** @throws VmError if this agent has none */
export function requireVms({ vms }: Pick<TaskContext, 'vms'>): Vms {
  if (vms !== undefined) return vms;
  throw new NoContainersError('The agent of this server was started without --containers, so it has no VMs');
}

/** @throws InvalidVmError naming each wrong field */
function parse<Schema extends z.ZodObject>(schema: Schema, params: Record<string, unknown>): z.infer<Schema> {
  const parsed = schema.safeParse(params, { error: messageOfIssue });
  if (parsed.success) return parsed.data;
  throw new InvalidVmError(parsed.error.issues.map(fieldErrorOf));
}

const notSupported = (name: string) => ({
  field: name.slice(0, MAX_NAME_CHARS),
  code: 'Invalid',
  message: 'is not supported by VMs of this server',
});

const msOf = (seconds: number | undefined) => (seconds === undefined ? undefined : seconds * MS);
