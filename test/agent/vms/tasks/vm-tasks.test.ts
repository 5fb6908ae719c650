import t, { type Test } from 'tap';
import type { TaskContext } from '../../../../lib/agent/runner/task-definition.ts';
import { vmTasks } from '../../../../lib/agent/vms/tasks/vm-tasks.ts';
import { systemClock } from '../../../../lib/platform/time/clock.ts';
import { IMAGE, uuidOf, VmMachine } from '../../../support/vm-rig.ts';

const A = uuidOf(1);

/** Runs tasks of an agent with these VMs. */
async function agentOf(t: Test) {
  const vms = await new VmMachine(t).agent();
  return async (
    name: keyof typeof vmTasks,
    params: object,
    context: Partial<TaskContext> = {},
  ): Promise<Record<string, unknown>> => {
    const usual = { vms, clock: systemClock, signal: new AbortController().signal };
    return vmTasks[name].run(params as Record<string, unknown>, { ...usual, ...context } as TaskContext);
  };
}

t.test('tasks of VMs answer as those of the agent of Triton', async (t) => {
  const run = await agentOf(t);
  const create = { uuid: A, image_uuid: IMAGE, jobid: 'ignored', server_uuid: A, max_physical_memory: 64 };
  t.match(await run('machine_create', create), { vm: { uuid: A, state: 'running' } });
  t.match(await run('machine_load', { uuid: A }), { uuid: A, state: 'running' });
  t.match(await run('machine_info', { uuid: A, types: ['limits'] }), { limits: { memory_bytes: 64 * 1024 * 1024 } });
  t.same(await run('machine_proc', { uuid: A }), { processes: [] });
  t.match(await run('machine_update', { uuid: A, alias: 'web' }), { vm: { alias: 'web' } });
  t.match(await run('machine_create_snapshot', { uuid: A, snapshot_name: 'one' }), { vm: { state: 'running' } });
  t.match(await run('machine_shutdown', { uuid: A, timeout: '5', force: 'false' }), { vm: { state: 'stopped' } });
  t.match(await run('machine_boot', { uuid: A, update: { set_internal_metadata: { a: 'b' } } }), {
    vm: { state: 'running', internal_metadata: { a: 'b' } },
  });
  t.match(await run('machine_kill', { uuid: A, signal: 9 }), { vm: { state: 'stopped' } });
  t.same(await run('machine_destroy', { uuid: A }), {});
  t.same(await run('machine_destroy', { uuid: A }), {}, 'a missing VM is a success');
});

t.test('bad parameters are refused, and the message names them', async (t) => {
  const run = await agentOf(t);
  const good = { uuid: A, image_uuid: IMAGE };
  const rows: [keyof typeof vmTasks, object, RegExp | { code: string }][] = [
    ['machine_create', { uuid: A }, /^image_uuid is missing/],
    ['machine_create', { ...good, uuid: '../etc' }, /^uuid is not a lower-case UUID/],
    ['machine_create', { ...good, brand: 'kvm' }, /^brand is not supported/],
    ['machine_create', { ...good, disks: [{}] }, /^disks are not supported/],
    ['machine_create', { ...good, max_physical_memory: 1 }, /^max_physical_memory is not a whole number from 6/],
    ['machine_create', { ...good, alias: 'a b', hostname: '-' }, /^alias is not an alias.*hostname is not a host name/],
    ['machine_create', { ...good, nics: [{}] }, /^nics.0.nic_tag/],
    ['machine_create', { ...good, customer_metadata: { a: 1 } }, /^customer_metadata.a is not a text/],
    ['machine_create', { ...good, firewall_enabled: true }, /^firewall_enabled is not supported/],
    ['machine_update', { uuid: A, add_disks: [{}] }, /^add_disks is not supported/],
    ['machine_load', { uuid: A }, { code: 'VmNotFound' }],
    ['machine_create_snapshot', { uuid: A, snapshot_name: '../x' }, /is not a snapshot name/],
    ['machine_boot', { uuid: A, update: { ram: 5 } }, /update/],
    ['machine_shutdown', { uuid: A, timeout: 1e9 }, /timeout: is not a whole number/],
  ];
  for (const [name, params, wanted] of rows) await t.rejects(run(name, params), wanted, name);
  const created = await run('machine_create', { ...good, max_physical_memory: 64 });
  t.ok(created);
  await t.rejects(run('machine_info', { uuid: A, types: ['vnc'] }), { code: 'NotSupported' });
  await t.rejects(run('machine_kill', { uuid: A, signal: 'NO' }), /signal is not a signal/);
});

t.test('an agent without containers says so', async (t) => {
  const run = await agentOf(t);
  const context = { vms: undefined };
  await t.rejects(run('machine_load', { uuid: A }, context), { code: 'NoContainers' });
  await t.rejects(run('machine_destroy', { uuid: A }, context), { code: 'NoContainers' });
});

t.test('a task that is aborted ends immediately, and its action goes on', async (t) => {
  const run = await agentOf(t);
  const abort = new AbortController();
  abort.abort(new Error('cancelled'));
  const create = { uuid: A, image_uuid: IMAGE, max_physical_memory: 64 };
  await t.rejects(run('machine_create', create, { signal: abort.signal }), /cancelled/);
  t.match(await run('machine_create', create), { vm: { state: 'running' } });
});
