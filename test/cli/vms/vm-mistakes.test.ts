/** Mistakes in `cnapi vm` and `cnapi image`: each is refused with what to do, before the agent gets a task. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { VmAgent } from '../../control/vms/vm-agent.ts';
import { freshZone } from '../../support/apps.ts';
import { until } from '../../support/until.ts';
import { Cli } from '../rig.ts';

t.test('mistakes in commands about VMs', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const agent = await VmAgent.start(app);
  t.teardown(() => agent.agent.close());
  const cli = new Cli(t, [app.url]);
  const [web, kvm] = [randomUUID(), randomUUID()];
  agent.report(
    { uuid: web, alias: 'web', brand: 'oci', state: 'running' },
    { uuid: kvm, alias: 'kvm', brand: 'kvm', state: 'running' },
  );
  for (const uuid of [web, kvm])
    await until(async () => (await app.get(`/vms/${uuid}`)).status === 200, 'the VM to be stored');
  const image = `image_uuid=${randomUUID()}`;
  const tasks = () => agent.received.size;

  await t.test('a name that is not a field of a VM is refused', async (t) => {
    t.match(await cli.run('vm', 'create', 'scripted', image, 'max_physical_memry=64'), {
      code: 2,
      stdout: '',
      stderr: /max_physical_memry is not a field that cnapi vm create takes; did you mean max_physical_memory\?/,
    });
    t.match(await cli.run('vm', 'update', 'web', 'nosuch=1'), {
      code: 2,
      stdout: '',
      stderr: /nosuch is not a field that cnapi vm update takes; the fields are add_nics, alias, autoboot, /,
    });
    t.match(await cli.run('vm', 'update', 'web', image), { code: 2 }, 'a field of a create alone');
    t.equal(tasks(), 0);
  });

  await t.test('VMs of another brand have fields that only their agents know', async (t) => {
    t.match(await cli.run('vm', 'update', 'kvm', 'vcpus=2'), { code: 0 });
    t.match(await cli.run('vm', 'create', 'scripted', image, 'brand=kvm', 'vcpus=2', '--detach'), { code: 0 });
    await until(() => tasks() === 2, 'both tasks');
  });
});
