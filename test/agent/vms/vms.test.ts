import t from 'tap';
import type { VmRecord } from '../../../lib/agent/vms/vm-record.ts';
import type { Vms } from '../../../lib/agent/vms/vms.ts';
import { type Vm, vm as vmSchema, vmSummary, vmUpdate } from '../../../lib/protocol/vms.ts';
import { matchLists } from '../../support/match-lists.ts';
import { IMAGE, OTHER_IMAGE, payload, uuidOf, VmMachine } from '../../support/vm-rig.ts';

const A = uuidOf(1);
const command = (...args: string[]) => ({ internal_metadata: { 'docker:cmd': JSON.stringify(args) } });
const fails = (code: string) => ({ code });

t.test('a VM from its creation to its end', async (t) => {
  const machine = new VmMachine(t);
  const vms = await machine.agent();
  const created = await vms.create(payload(1, { alias: 'web', cpu_cap: 50, tags: { role: 'web' } }));
  t.match(created, {
    uuid: A,
    alias: 'web',
    state: 'running',
    zone_state: 'running',
    brand: 'oci',
    cpu_cap: 50,
    max_physical_memory: 64,
    tags: { role: 'web' },
    autoboot: true,
  });
  vmSchema.parse(created);
  t.match(await vms.shutdown(A), { state: 'stopped', exit_status: 143 });
  t.match(await vms.boot(A), { state: 'running' });
  t.match(await vms.reboot(A), { state: 'running' });
  t.match(await vms.kill(A), { state: 'stopped', exit_status: 137 });
  t.match(await vms.load(A), { state: 'stopped' });
  await vms.destroy(A);
  await vms.destroy(A);
  await t.rejects(vms.load(A), fails('VmNotFound'));
  t.same([machine.host.ids, [...machine.images.uses], [...machine.records.kept]], [[], [], []], 'nothing is left');
});

t.test('repeats are a success with idempotent, and otherwise say how the VM is', async (t) => {
  const vms = await new VmMachine(t).agent();
  await vms.create(payload(1));
  await t.rejects(vms.boot(A), fails('VmAlreadyRunning'));
  t.match(await vms.boot(A, { idempotent: true }), { state: 'running' });
  await vms.shutdown(A);
  for (const repeat of [vms.shutdown, vms.reboot, vms.kill]) {
    await t.rejects(repeat.call(vms, A), fails('VmNotRunning'));
    t.match(await repeat.call(vms, A, { idempotent: true }), { state: 'stopped' });
  }
});

t.test('a create can be repeated, and another one for the same uuid is refused', async (t) => {
  const machine = new VmMachine(t);
  const vms = await machine.agent();
  const [first, second] = await Promise.all([vms.create(payload(1)), vms.create(payload(1))]);
  t.same(second, first, 'also at the same time');
  await t.rejects(vms.create(payload(1, { alias: 'other' })), fails('VmExists'));
  t.same(await (await machine.agent()).create(payload(1)), first, 'also with the next agent');
});

t.test('a VM is told of when a killed agent would leave it', async (t) => {
  const machine = new VmMachine(t);
  const vms = await machine.agent();
  const told: string[][] = [];
  machine.records.beforeWrite = () => void told.push(Object.keys(vms.summaries()));
  await vms.create(payload(1));
  t.same(told[0], [], 'not before its record is written');
  t.same(told.at(-1), [A]);
});

t.test('what cannot be created leaves nothing', async (t) => {
  const machine = new VmMachine(t);
  const vms = await machine.agent({ maxVms: 1 });
  const missing = uuidOf(99);
  await t.rejects(vms.create(payload(1, { image_uuid: missing })), fails('ImageNotFound'));
  const nics = [{ nic_tag: 'other', ips: ['10.0.0.5/24'] }];
  await t.rejects(vms.create(payload(1, { nics })), /^nics.0.nic_tag "other" is not allowed/);
  await t.rejects(
    vms.create(payload(1, { internal_metadata: { 'docker:cmd': 'serve' } })),
    /docker:cmd is not a JSON list/,
  );
  await t.rejects(
    vms.create(payload(1, { internal_metadata: { 'docker:tty': 'yes' } })),
    /docker:tty is neither true nor false/,
  );
  t.same([vms.list(), machine.host.ids], [[], []]);
  await vms.create(payload(1));
  await t.rejects(vms.create(payload(2)), fails('TooManyVms'));
  const none = await machine.agent({ unavailableReason: 'There is no runc on this server' });
  await t.rejects(none.create(payload(3)), { code: 'NoContainers', message: 'There is no runc on this server' });
});

t.test('a VM whose program cannot be started fails with the reason, and can be destroyed', async (t) => {
  const machine = new VmMachine(t);
  const vms = await machine.agent();
  machine.host.start = () => {
    throw new Error('exec: "serve": not found');
  };
  await t.rejects(vms.create(payload(1)), { code: 'VmFailed', message: /could not be started: exec: "serve"/ });
  t.match(await vms.load(A), { state: 'failed', error: /not found/ });
  await t.rejects(vms.boot(A), fails('VmHasFailed'));
  await t.rejects(vms.create(payload(1)), fails('VmFailed'));
  await vms.destroy(A);
  t.same([vms.list(), machine.host.ids, [...machine.images.uses]], [[], [], []]);
});

t.test('a VM whose program exits is stopped, and stays so', async (t) => {
  const machine = new VmMachine(t);
  const vms = await machine.agent();
  await vms.create(payload(1, command('sleep', '10')));
  const changes: string[] = [];
  vms.onChange(() => changes.push(vms.list()[0]?.state ?? ''));
  await machine.clock.advance(10_000);
  t.match(await vms.load(A), { state: 'stopped', exit_status: 0 });
  t.equal(changes.at(-1), 'stopped', 'listeners are told');
  t.match(await (await machine.agent()).load(A), { state: 'stopped' }, 'the next agent does not start it');
});

t.test('after a restart of the machine runs what ran, if it boots by itself', async (t) => {
  const machine = new VmMachine(t);
  const first = await machine.agent();
  await first.create(payload(1));
  await first.create(payload(2));
  await first.shutdown(uuidOf(2));
  await first.create(payload(3));
  await first.update(uuidOf(3), vmUpdate.parse({ autoboot: false }));
  machine.host.restart();
  const next = await machine.agent();
  t.same(
    next.list().map(({ state }) => state),
    ['running', 'stopped', 'stopped'],
  );
});

/** Ends the agent at the n-th write of a record, as a kill would: nothing after it happens. */
const killAt = (machine: VmMachine, nth: number): Promise<void> => {
  let writes = 0;
  return new Promise((killed) => {
    machine.records.beforeWrite = () => {
      writes += 1;
      if (writes < nth) return;
      killed();
      return new Promise(() => undefined);
    };
  });
};

const actions: [string, (vms: Vms) => Promise<unknown>][] = [
  ['create', (vms) => vms.create(payload(2))],
  ['shutdown', (vms) => vms.shutdown(A)],
  ['reboot', (vms) => vms.reboot(A)],
  ['reprovision', (vms) => vms.reprovision(A, OTHER_IMAGE)],
  ['rollback', (vms) => vms.rollbackSnapshot(A, 's')],
  ['destroy', (vms) => vms.destroy(A)],
];
for (const [name, act] of actions)
  t.test(`an agent that is killed at any write of a ${name} leaves VMs that the next one has`, async (t) => {
    for (let nth = 1; nth <= 6; nth++) {
      const machine = new VmMachine(t);
      const vms = await machine.agent();
      await vms.create(payload(1));
      await vms.createSnapshot(A, 's');
      const killed = killAt(machine, nth);
      const done = act(vms).then(() => 'done');
      const end = await Promise.race([killed.then(() => 'killed'), done]);
      machine.records.beforeWrite = () => undefined;
      const next = await machine.agent();
      for (const { state } of next.list())
        t.match(state, /^(running|stopped|failed)$/, `${name}, write ${nth}: ${state}`);
      t.same(
        machine.host.ids.filter((id) => next.list().every(({ uuid }) => uuid !== id)),
        [],
        'no container without a VM',
      );
      for (const { uuid } of next.list()) await next.destroy(uuid);
      t.same([next.list(), machine.host.ids, [...machine.images.uses]], [[], [], []], 'all can be destroyed');
      if (end === 'done') {
        t.ok(nth > 1);
        return;
      }
    }
    t.fail('the action has more writes than this test has kills');
  });

t.test('actions of one VM happen in order, a bounded number waits, and a kill does not', async (t) => {
  const machine = new VmMachine(t);
  const vms = await machine.agent();
  await vms.create(payload(1));
  machine.host.signal = ((signal) =>
    function (this: typeof machine.host, ...[run, name]: Parameters<typeof signal>) {
      if (name !== 'SIGTERM') signal.call(this, run, name);
    })(machine.host.signal);
  const stop = vms.shutdown(A, { timeoutMs: 60_000 });
  const order: string[] = [];
  void stop.then(() => order.push('stop'));
  const waiting = Array.from({ length: 16 }, (_, index) =>
    vms.update(A, vmUpdate.parse({ alias: `name${index}` })).then(() => order.push(`update ${index}`)),
  );
  await t.rejects(vms.update(A, vmUpdate.parse({ alias: 'more' })), fails('VmIsBusy'));
  await t.rejects(vms.destroy(A), fails('VmIsBusy'), 'a destroy waits like other actions');
  await machine.clock.advance(0);
  t.match(await vms.load(A), { state: 'stopping' });
  t.match(await vms.create(payload(2)), { state: 'running' }, 'another VM does not wait');
  await vms.kill(A);
  await Promise.all([stop, ...waiting]);
  t.same(order, ['stop', ...waiting.map((_, index) => `update ${index}`)]);
  t.match(await vms.load(A), { state: 'stopped', alias: 'name15' });
});

t.test('an update changes limits immediately and the program at its next start', async (t) => {
  const machine = new VmMachine(t);
  const vms = await machine.agent();
  await vms.create(payload(1, { customer_metadata: { a: '1', b: '2' } }));
  const update = vmUpdate.parse({
    max_physical_memory: 128,
    set_customer_metadata: { b: '3', c: '4' },
    remove_customer_metadata: ['a'],
    set_internal_metadata: { 'docker:cmd': '["sleep", "5"]' },
  });
  t.match(await vms.update(A, update), {
    state: 'running',
    max_physical_memory: 128,
    customer_metadata: { b: '3', c: '4' },
  });
  const { spec } = machine.containers.get(A);
  matchLists(t, spec, { limits: { memoryBytes: 128 * 1024 * 1024 }, process: { args: ['sleep', '5'] } });
  t.match(await (await machine.agent()).load(A), { max_physical_memory: 128 });
});

t.test('interfaces get names and addresses, and a change of them reboots the VM', async (t) => {
  const machine = new VmMachine(t);
  const vms = await machine.agent();
  const nics = [{ nic_tag: 'br0', ip: '10.0.0.5', netmask: '255.255.255.0', gateway: '10.0.0.1', primary: true }];
  const {
    nics: [first],
  } = await vms.create(payload(1, { nics }));
  matchLists(t, first, { interface: 'net0', ips: ['10.0.0.5/24'], netmask: '255.255.255.0', mac: /^90:b8:d0:/ });
  const add = vmUpdate.parse({ add_nics: [{ nic_tag: 'br0', ips: ['10.0.1.5/24'] }] });
  matchLists(t, await vms.update(A, add), { state: 'running', nics: [{ interface: 'net0' }, { interface: 'net1' }] });
  t.match(machine.containers.get(A).state, { run: 2 }, 'rebooted');
  const remove = vmUpdate.parse({ remove_nics: [first?.mac] });
  matchLists(t, await vms.update(A, remove), { nics: [{ interface: 'net1', primary: true }] });
  await t.rejects(vms.update(A, remove), /remove_nics.0 names no interface/);
});

t.test('snapshots have names, a bound, and go with a reprovision', async (t) => {
  const vms = await new VmMachine(t).agent();
  await vms.create(payload(1));
  for (let n = 0; n < 32; n++) await vms.createSnapshot(A, `s${n}`);
  await t.rejects(vms.createSnapshot(A, 's0'), fails('SnapshotExists'));
  await t.rejects(vms.createSnapshot(A, 'more'), fails('TooManySnapshots'));
  await t.rejects(vms.rollbackSnapshot(A, 'more'), fails('SnapshotNotFound'));
  t.match(await vms.rollbackSnapshot(A, 's3'), { state: 'running' });
  t.equal((await vms.deleteSnapshot(A, 's3')).snapshots.length, 31);
  const again = await vms.reprovision(A, OTHER_IMAGE);
  t.match(again, { state: 'running', image_uuid: OTHER_IMAGE });
  t.same(again.snapshots, []);
});

t.test('a snapshot of which a part could not be deleted is not offered again', async (t) => {
  const machine = new VmMachine(t);
  const vms = await machine.agent();
  await vms.create(payload(1));
  await vms.createSnapshot(A, 's');
  await machine.agent({
    snapshots: {
      ...machine.host.snapshots,
      remove: () => Promise.reject(new Error('A part of it is deleted')),
    },
  });
  await t.rejects(machine.vms.deleteSnapshot(A, 's'), /A part of it/);
  t.same((await machine.vms.load(A)).snapshots, []);
  await t.rejects(machine.vms.rollbackSnapshot(A, 's'), fails('SnapshotNotFound'));
  const next = await machine.agent();
  t.same((await next.load(A)).snapshots, [], 'nor by the next agent');
});

t.test('a snapshot that is gone, as the delete of it could not be recorded, is not offered', async (t) => {
  const machine = new VmMachine(t);
  const vms = await machine.agent();
  await vms.create(payload(1));
  await vms.createSnapshot(A, 's');
  machine.records.fill();
  await vms.deleteSnapshot(A, 's');
  machine.records.beforeWrite = () => undefined;
  const next = await machine.agent();
  t.same((await next.load(A)).snapshots, []);
  await t.rejects(next.rollbackSnapshot(A, 's'), fails('SnapshotNotFound'));
  t.match(await next.load(A), { state: 'running' });
});

t.test('a status tells the fields of Triton of each VM', async (t) => {
  const vms = await new VmMachine(t).agent();
  await vms.create(payload(1, { owner_uuid: IMAGE }));
  const { [A]: summary } = vms.summaries();
  vmSummary.parse(summary);
  t.match(summary, { uuid: A, state: 'running', owner_uuid: IMAGE, quota: 10, zone_state: 'running' });
  t.notOk(Object.keys(summary ?? {}).includes('internal_metadata'));
});

t.test('a full disk does not keep a VM from being stopped or destroyed', async (t) => {
  const machine = new VmMachine(t);
  const vms = await machine.agent();
  await vms.create(payload(1));
  machine.records.beforeWrite = (_record: VmRecord) => {
    throw new Error('ENOSPC: no space left on device');
  };
  await t.rejects(vms.create(payload(2)), { code: 'VmFailed', message: /cannot be recorded: ENOSPC/ });
  t.match(await vms.shutdown(A), { state: 'stopped' });
  await vms.destroy(A);
  t.same([vms.list(), machine.host.ids], [[], []]);
});

/** Makes the disk full from the nth write on. */
const fillDiskAt = (machine: VmMachine, nth: number) => {
  let writes = 0;
  machine.records.beforeWrite = () => {
    writes += 1;
    if (writes >= nth) throw new Error('ENOSPC: no space left on device');
  };
};

const durable: [string, (vms: Vms) => Promise<unknown>][] = [
  ['create', (vms) => vms.create(payload(2))],
  ['update', (vms) => vms.update(A, vmUpdate.parse({ alias: 'other' }))],
  ['snapshot', (vms) => vms.createSnapshot(A, 'new')],
  ['rollback', (vms) => vms.rollbackSnapshot(A, 's')],
  ['reprovision', (vms) => vms.reprovision(A, OTHER_IMAGE)],
];
for (const [name, act] of durable)
  t.test(`a ${name} on a disk that becomes full fails, or the next agent has its result`, async (t) => {
    for (let nth = 1; nth <= 6; nth++) {
      const machine = new VmMachine(t);
      const vms = await machine.agent();
      await vms.create(payload(1));
      await vms.createSnapshot(A, 's');
      fillDiskAt(machine, nth);
      const isDone = await act(vms).then(
        () => true,
        () => false,
      );
      const facts = ({ uuid, state, alias, image_uuid, snapshots }: Vm) => ({
        uuid,
        state,
        alias,
        image_uuid,
        snapshots,
      });
      const before = vms.list().map(facts);
      machine.records.beforeWrite = () => undefined;
      const next = await machine.agent();
      if (isDone) t.same(next.list().map(facts), before, `write ${nth}`);
      const run = (id: string) => machine.containers.list().find(({ spec }) => spec.id === id)?.state;
      if (isDone && name === 'rollback') t.match(run(A), { run: 2 }, 'it is not rolled back again');
      const [{ snapshots } = { snapshots: [] }] = next.list();
      for (const { name: snapshot } of snapshots) await next.rollbackSnapshot(A, snapshot);
    }
  });

for (const [name, repeat] of Object.entries({
  kill: (vms: Vms) => vms.kill(A),
  'forced shutdown': (vms: Vms) => vms.shutdown(A, { force: true }),
  shutdown: (vms: Vms) => vms.shutdown(A),
  destroy: (vms: Vms) => vms.destroy(A),
}))
  t.test(`after a kill that failed, a repeated ${name} of the VM works`, async (t) => {
    const machine = new VmMachine(t);
    const vms = await machine.agent();
    await vms.create(payload(1));
    const { signal } = machine.host;
    machine.host.signal = () => {
      machine.host.signal = signal;
      throw new Error('The runtime did not answer in time');
    };
    await t.rejects(vms.kill(A), /did not answer/);
    t.match(await vms.load(A), { state: 'stopping' });
    await repeat(vms);
    t.same(
      vms.list().map(({ state }) => state),
      name === 'destroy' ? [] : ['stopped'],
    );
  });
