/**
 * VMs whose records, or those of their containers, the agent cannot read, as after a roll-back of
 * the agent.
 */
import t from 'tap';
import { OTHER_IMAGE, payload, uuidOf, VmMachine } from '../../support/vm-rig.ts';

const A = uuidOf(1);
const RUN = { id: A, number: 1 };
const busy = { code: 'VmIsBusy', message: /record .*cannot be read \(The record has version 2.*repair the record/ };

t.test('a VM whose container has an unreadable record is left alone, and continues after the repair', async (t) => {
  const machine = new VmMachine(t);
  await (await machine.agent()).create(payload(1));
  const before = machine.records.kept.get(A);
  const { repair } = machine.containerRecords.damage(A);
  const vms = await machine.agent();
  t.match(await vms.load(A), { state: 'running', error: /cannot be read/ });
  await t.rejects(vms.create(payload(1)), busy);
  await t.rejects(vms.destroy(A), busy);
  await t.rejects(vms.reprovision(A, OTHER_IMAGE), busy);
  await t.rejects(vms.kill(A, { idempotent: true }), busy);
  await t.rejects(vms.update(A, { alias: 'other' }), busy);
  await t.rejects(vms.running.processes(A), busy);
  t.equal(machine.records.kept.get(A), before, 'its record stays');
  t.equal(machine.host.find(RUN), 'running');
  t.same([...machine.images.uses.keys()], [A], 'its image stays');
  repair();
  const next = await machine.agent();
  t.match(await next.shutdown(A), { state: 'stopped', exit_status: 143 });
});

t.test('a destroy that was begun continues when the record of the container is repaired', async (t) => {
  const machine = new VmMachine(t);
  await (await machine.agent()).create(payload(1));
  const record = JSON.parse(machine.records.kept.get(A) ?? '');
  await machine.records.write({ ...record, phase: { name: 'destroying' } });
  const { repair } = machine.containerRecords.damage(A);
  const vms = await machine.agent();
  t.match(await vms.load(A), { state: 'destroying', error: /cannot be read/ });
  t.equal(machine.host.find(RUN), 'running');
  repair();
  t.same((await machine.agent()).list(), []);
  t.same(machine.host.ids, []);
});

t.test('an unreadable record of a container protects it also if no VM has it', async (t) => {
  const machine = new VmMachine(t);
  await (await machine.agent()).create(payload(1));
  machine.containerRecords.damage(A);
  machine.records.kept.delete(A);
  const vms = await machine.agent();
  await t.rejects(vms.create(payload(1)), busy);
  await t.rejects(vms.destroy(A), busy);
  t.same([vms.list(), machine.host.find(RUN)], [[], 'running']);
});

t.test('a VM whose own record is unreadable is left alone, and shown as failed with the reason', async (t) => {
  const machine = new VmMachine(t);
  await (await machine.agent()).create(payload(1));
  const { repair } = machine.records.damage(A);
  const vms = await machine.agent();
  await t.rejects(vms.create(payload(1)), busy);
  await t.rejects(vms.shutdown(A), busy);
  await t.rejects(vms.load(A), busy);
  t.match(vms.summaries(), {
    [A]: {
      uuid: A,
      state: 'failed',
      max_physical_memory: 64,
      error: /^The record of the VM cannot be read \(The record has version 2/,
    },
  });
  await machine.containers.stopContainer(A, { signal: 'SIGTERM', timeoutMs: 1_000 });
  t.same([vms.list(), machine.host.ids], [[], [A]]);
  repair();
  const next = await machine.agent();
  t.match(await next.load(A), { state: 'stopped' });
  t.match(next.summaries(), { [A]: { state: 'stopped', error: undefined } });
});

t.test('a VM whose own record is unreadable can be destroyed, and nothing of it is left', async (t) => {
  const machine = new VmMachine(t);
  await (await machine.agent()).create(payload(1));
  machine.records.damage(A, 'Unexpected end of JSON input');
  const vms = await machine.agent();
  let changes = 0;
  vms.onChange(() => {
    changes += 1;
  });
  await Promise.all([vms.destroy(A), vms.destroy(A)]);
  t.same([machine.host.ids, [...machine.images.uses.keys()], vms.summaries()], [[], [], {}]);
  t.ok(changes > 0, 'the next status frame tells of it');
  t.match(await vms.create(payload(1)), { state: 'running' });
  t.same(
    (await machine.agent()).list().map(({ uuid }) => uuid),
    [A],
    'a new agent finds only the new one',
  );
});

t.test('but not while the record of its container is unreadable too', async (t) => {
  const machine = new VmMachine(t);
  await (await machine.agent()).create(payload(1));
  machine.records.damage(A);
  machine.containerRecords.damage(A);
  const vms = await machine.agent();
  await t.rejects(vms.destroy(A), busy);
  t.match(vms.summaries(), { [A]: { state: 'failed', max_physical_memory: undefined } });
  t.equal(machine.host.find(RUN), 'running');
});
