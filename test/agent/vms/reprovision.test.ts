/** Reprovisions that cannot be done. */
import t from 'tap';
import { IMAGE, OTHER_IMAGE, payload, uuidOf, VmMachine } from '../../support/vm-rig.ts';

const A = uuidOf(1);

t.test('a reprovision has its image before the old root file system is removed', async (t) => {
  const machine = new VmMachine(t);
  const vms = await machine.agent();
  await vms.create(payload(1));
  const before = machine.containers.list();
  const get = machine.images.get.bind(machine.images);
  // Somebody deletes the image once its layers are known.
  machine.images.get = async (uuid) => {
    const found = await get(uuid);
    machine.images.known.delete(uuid);
    return found;
  };
  await t.rejects(vms.reprovision(A, OTHER_IMAGE), { code: 'ImageNotFound' });
  t.match(await vms.load(A), { state: 'running', image_uuid: IMAGE });
  t.same(machine.containers.list(), before);
  t.same([...machine.images.uses], [[A, [IMAGE]]]);
});

t.test('a reprovision that cannot be recorded leaves the VM as it is, and does not keep the new image', async (t) => {
  const machine = new VmMachine(t);
  const vms = await machine.agent();
  await vms.create(payload(1));
  machine.records.fill();
  await t.rejects(vms.reprovision(A, OTHER_IMAGE), { code: 'VmFailed' });
  t.match(await vms.load(A), { state: 'running', image_uuid: IMAGE });
  t.same([...machine.images.uses], [[A, [IMAGE]]]);
});

t.test('after a reprovision the VM has the new image only', async (t) => {
  const machine = new VmMachine(t);
  const vms = await machine.agent();
  await vms.create(payload(1));
  await vms.reprovision(A, OTHER_IMAGE);
  t.same([...machine.images.uses], [[A, [OTHER_IMAGE]]]);
});

t.test('a VM whose old container cannot be removed has failed, and can be reprovisioned again', async (t) => {
  const machine = new VmMachine(t);
  const vms = await machine.agent();
  await vms.create(payload(1));
  const { remove } = machine.host;
  machine.host.remove = () => {
    throw new Error('target is busy');
  };
  await t.rejects(vms.reprovision(A, OTHER_IMAGE), { code: 'VmFailed', message: /removed: .*target is busy/ });
  t.match(await vms.load(A), { state: 'failed' });
  machine.host.remove = remove;
  t.match(await vms.reprovision(A, OTHER_IMAGE), { state: 'stopped', image_uuid: OTHER_IMAGE });
  t.match(await vms.boot(A), { state: 'running' });
});
