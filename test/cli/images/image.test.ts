import { randomUUID } from 'node:crypto';
import t from 'tap';
import type { JsonObject } from '../../../lib/protocol/json/bounded-json.ts';
import { VmAgent } from '../../control/vms/vm-agent.ts';
import { freshZone } from '../../support/apps.ts';
import { until } from '../../support/until.ts';
import { Cli } from '../rig.ts';

t.test('images of a server on the command line', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const agent = await VmAgent.start(app);
  t.teardown(() => agent.agent.close());
  const cli = new Cli(t, [app.url]);
  const uuid = randomUUID();
  const used = { state: 'ready', source: 'stream', size: 5 * 1024 * 1024, vms: 2 };
  const images: JsonObject[] = [{ uuid, ...used, last_used_at: '2026-11-27T09:00:00.000Z' }];
  agent.answer = ({ name }) => {
    if (name === 'image_delete') return { error: { code: 'ImageInUse', message: 'a VM uses it' } };
    if (name === 'image_list') return { result: { images } };
    return { result: { uuid, state: 'ready' } };
  };
  const paramsOf = (name: string) => [...agent.received.values()].findLast((task) => task.name === name)?.params;

  t.match(await cli.run('image', 'load', 'scripted', '/srv/a b?.tar', '--uuid', uuid), {
    code: 0,
    stdout: `${uuid}\n`,
  });
  t.strictSame(paramsOf('image_ensure_present'), { image_uuid: uuid, url: 'file:///srv/a%20b%3F.tar' });
  const digest = `sha256:${'0'.repeat(64)}`;
  const detached = await cli.run('image', 'load', 'scripted', 'https://example.com/x.tar', '--digest', digest, '-d');
  t.match(detached, { code: 0, stdout: /^[0-9a-f-]{36}\n$/, stderr: /^cnapi: image [0-9a-f-]{36}$/m });
  await until(() => 'digest' in (paramsOf('image_ensure_present') ?? {}), 'the second load');
  t.match(paramsOf('image_ensure_present'), { url: 'https://example.com/x.tar', digest });
  const signed = 'https://example.com/x.tar?signature=secret';
  await cli.run('image', 'load', 'scripted', signed, '--uuid', uuid);
  const secret = { image_uuid: uuid, url: signed, secret_params: ['/url'] };
  t.strictSame(paramsOf('image_ensure_present'), secret, 'a query may hold a signature');
  t.match(await cli.run('image', 'load', 'scripted', 'images/x.tar'), { code: 2, stderr: /neither a URL/ });
  t.match(await cli.run('image', 'load', 'nowhere', '/x.tar'), { code: 2, stderr: /nowhere/ });
  t.match(await cli.run('image', 'get', 'scripted', uuid), { code: 0, stdout: /state +ready/ });
  t.match(await cli.run('image', 'list', 'scripted'), { code: 0, stdout: /ready +5\.0 MiB +2 .*stream/ });
  t.same(await cli.json('image', 'list', 'scripted'), images);
  t.match(await cli.run('image', 'list', 'nowhere'), { code: 2, stderr: /nowhere/ });
  const error = { code: 'InvalidImage', message: 'the archive is cut off' };
  images[0] = { ...images[0], state: 'failed', size: 0, vms: 0, error };
  t.match(await cli.run('image', 'list', 'scripted'), {
    stdout: / failed +- +0 /,
    stderr: `${uuid}: the archive is cut off (InvalidImage)`,
  });
  images.pop();
  t.match(await cli.run('image', 'list', 'scripted'), { code: 0, stderr: /scripted has no images/ });
  t.match(await cli.run('image', 'delete', 'scripted', uuid), {
    code: 1,
    stderr: /image [0-9a-f-]{36} could not be deleted: a VM uses it \(ImageInUse\)/,
  });
});
