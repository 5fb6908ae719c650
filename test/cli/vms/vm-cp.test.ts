/** `cnapi vm cp` with a real instance, a real agent and a real VM. */
import { randomBytes } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import { lacksContainers } from '../../support/container-machine.ts';
import { startZone } from '../../support/fleet-harness.ts';
import { cannotMount } from '../../support/mounted-folder.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { IMAGE } from '../../support/vm-rig.ts';
import { dataWithImage } from '../../support/vms-on-linux.ts';
import { Cli } from '../rig.ts';

t.setTimeout(FILE_TIMEOUT_MS);
const skip = lacksContainers() || cannotMount();

t.test('files and directories are copied from and to a VM', { skip }, async (t) => {
  const data = await dataWithImage(t);
  const zone = await startZone(t, { instances: 1, agents: 0, simulated: 0 });
  const agent = zone.addAgent(undefined, undefined, { data, options: ['--containers'] });
  await zone.untilRunning(1);
  const cli = new Cli(
    t,
    zone.instances.map(({ url }) => url),
  );
  const metadata = { 'docker:entrypoint': '["/bin/sh","-c"]', 'docker:cmd': '["sleep 3600"]' };
  const fields = [`image_uuid=${IMAGE}`, `internal_metadata=${JSON.stringify(metadata)}`, 'max_physical_memory=64'];
  t.match(await cli.run('vm', 'create', agent.serverUuid, 'alias=web', ...fields), { code: 0 });
  const here = path.join(zone.directory, 'here');
  mkdirSync(path.join(here, 'tree/deep'), { recursive: true });
  const big = randomBytes(3_000_000);
  writeFileSync(path.join(here, 'tree/deep/file'), big);
  symlinkSync('deep/file', path.join(here, 'tree/link'));
  const cp = (...args: string[]) => cli.start(['vm', 'cp', ...args]).ended;
  const done = { code: 0, stdout: '', stderr: '' };

  t.same(await cp(path.join(here, 'tree/deep/file'), 'web:/tmp/'), done);
  t.same(await cp('web:/tmp/file', path.join(here, 'back')), done);
  t.same(readFileSync(path.join(here, 'back')), big);
  t.same(await cp('-r', path.join(here, 'tree'), 'web:/tmp/tree'), done);
  t.same(await cp('-r', path.join(here, 'tree'), 'web:/tmp/tree'), done, 'again, into what is there');
  t.same(await cp('-r', 'web:/tmp/tree', path.join(here, 'tree-back')), done);
  t.same(readFileSync(path.join(here, 'tree-back/link')), big);
  t.same(readdirSync(path.join(here, 'tree-back')).sort(), ['deep', 'link']);

  t.match(await cp('web:/none', here), { code: 1, stderr: /^cnapi: there is no file \/none\n$/ });
  t.match(await cp('a', 'b'), { code: 2, stderr: /one of the two paths must be in a VM, as VM:PATH/ });
  t.match(await cp('no-such-vm:/a', here), { code: 2, stderr: /no-such-vm/ });
});
