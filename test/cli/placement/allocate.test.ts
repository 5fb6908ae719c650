import { randomUUID } from 'node:crypto';
import t from 'tap';
import { placementZone, withoutAgents } from '../../control/placement/support/placement-zone.ts';
import { freshZone } from '../../support/apps.ts';
import { Cli } from '../rig.ts';

t.test('servers for VMs on the command line', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp(withoutAgents);
  const { newServer, claims } = await placementZone(t, zone.database);
  const uuid = await newServer({ ram: 4096, cores: 2, disk: 100_000 });
  const silent = await newServer({ status: 'unknown' });
  const cli = new Cli(t, [app.url]);
  const vm = randomUUID();

  const explained = await cli.run('allocate', 'ram=1024', '--explain');
  t.match(explained, { code: 0, stdout: /hard-filter-running +2 +1 +\S+ is not running/ });
  t.match(explained.stdout, new RegExp(`^${uuid}$`, 'm'));
  t.strictSame(await claims(), [], 'explain holds nothing');
  t.match(await cli.run('allocate', `vm_uuid=${vm}`, 'ram=1024', 'quota=10240', 'cpu_cap=100'), {
    code: 0,
    stdout: `${uuid}\n`,
    stderr: new RegExp(
      `cnapi vm create \\S+ uuid=${vm} max_physical_memory=1024 quota=10 cpu_cap=100 image_uuid=UUID$`,
      'm',
    ),
  });
  t.strictSame(await claims(), [{ vm_uuid: vm, server_uuid: uuid, ram: 1024 }]);
  t.match(await cli.run('capacity', uuid), { code: 0, stdout: /175 +3072 +89760/ });
  t.match(await cli.run('capacity'), { code: 0, stdout: /is not running/ });
  t.match(await cli.run('allocate', 'ram=4096', '--explain'), { code: 1, stderr: /no server is left/ });
  t.match(await cli.run('allocate', 'ram=1', '--server', silent), { code: 1, stderr: /is not running/ });
  t.match(await cli.run('allocate', 'ram'), { code: 2, stderr: /ram is not FIELD=VALUE/ });
  t.match(await cli.run('allocate', 'ram=1', 'traits={'), { code: 2, stderr: /traits is not JSON/ });
  const other = JSON.parse((await cli.run('allocate', 'ram=64', '--json')).stdout) as { vm_uuid: string };
  t.ok(
    (await claims()).some(({ vm_uuid }) => vm_uuid === other.vm_uuid),
    'the uuid with which to create the VM',
  );
});
