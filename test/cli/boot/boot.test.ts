import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import t from 'tap';
import { freshZone } from '../../support/apps.ts';
import { Cli } from '../rig.ts';

t.test('platforms and boot parameters on the command line', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const cli = new Cli(t, [app.url]);
  const folder = mkdtempSync(path.join(os.tmpdir(), 'cnapi-boot-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const file = path.join(folder, 'module');
  writeFileSync(file, 'k=1');
  const uuid = randomUUID();
  await app.post(`/servers/${uuid}/sysinfo`, { sysinfo: { UUID: uuid, Hostname: 'web-1' } });

  t.match(await cli.run('platform', 'create', 'name=20210101T000000Z'), { code: 0 });
  t.match(await cli.run('platform', 'list'), { code: 0, stdout: /20210101T000000Z +smartos/ });
  const options = ['--platform', '20210101T000000Z', '--arg', 'a=b=c', '--flag', '-k=1', '--module', `etc/x=${file}`];
  for (const server of ['web-1', 'default']) {
    t.match(await cli.run('boot', 'set', server, ...options), { code: 0 }, server);
    t.match(await cli.run('boot', 'set', server, '--serial', 'ttya'), { code: 0 }, server);
    const shown = await cli.run('boot', 'show', server);
    t.match(shown, { code: 0, stdout: /platform +20210101T000000Z/ }, server);
    t.match(shown.stdout, /argument +a=b=c/);
    t.match(shown.stdout, /flag +-k=1/);
    t.match(shown.stdout, /module +etc\/x/, 'a change of something else keeps the modules');
    t.match(shown.stdout, /serial +ttya/);
    t.match(await cli.run('boot', 'unset', server, '--arg', 'a', '--flag', '-k', '--module', 'etc/x'), { code: 0 });
    const json = JSON.parse((await cli.run('boot', 'show', server, '--json')).stdout);
    t.strictSame([json.kernel_flags, json.boot_modules, 'a' in json.kernel_args], [{}, [], false], server);
  }

  t.match(await cli.run('boot', 'set', 'web-1', '--platform', 'nope'), {
    code: 1,
    stderr: /Platform 'nope' does not exist/,
  });
  t.match(await cli.run('boot', 'set', 'web-1'), { code: 2, stderr: /Nothing to set/ });
  t.match(await cli.run('boot', 'unset', 'web-1'), { code: 2, stderr: /Nothing to unset/ });
  t.match(await cli.run('boot', 'set', 'web-1', '--arg', 'a'), { code: 2, stderr: /--arg a is not NAME=VALUE/ });
  t.match(await cli.run('boot', 'set', 'web-1', '--module', 'etc/x=/no/file'), { code: 2, stderr: /cannot be read/ });
});
