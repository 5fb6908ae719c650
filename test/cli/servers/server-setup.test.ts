/** `cnapi server setup`, `nics` and `factory-reset`, with a real instance and real agents. */
import { randomUUID } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import type { WorkflowJob } from '../../../lib/protocol/api/workflows.ts';
import { settingsServer } from '../../control/workflows/settings-server.ts';
import { freshZone } from '../../support/apps.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { Cli } from '../rig.ts';

t.setTimeout(FILE_TIMEOUT_MS);

t.test('a server is set up and reset', async (t) => {
  const app = await (await freshZone(t)).startApp();
  const cli = new Cli(t, [app.url]);
  const resetProgram = '/bin/true';
  const server = await settingsServer(t, [app], { needsSetup: true, allowSetup: true, resetProgram });
  const { serverUuid } = server;
  const folder = t.testdir();
  const go = join(folder, 'go');
  const script = join(folder, 'post-setup.sh');
  await writeFile(script, `until [ -e '${go}' ]; do sleep 0.05; done; : a-password`);

  const setUp = ['server', 'setup', serverUuid, '--hostname', 'web-7', '--script', script, '--secret-script', '--wait'];
  const following = cli.start(setUp);
  await following.says(/ setup: waits for its task server_setup \([0-9a-f]{8}\)/);
  following.child.kill('SIGINT');
  const left = await following.ended;
  t.equal(left.code, 130);
  t.match(left.stderr, /workflow job [0-9a-f-]{36} continues; to follow it: cnapi workflow wait/);
  const shown = await cli.run('server', serverUuid);
  t.match(shown.stdout, /^now +setting up\njob +server-setup [0-9a-f]{8}: setup$/m);
  const isIn = await cli.json<{ workflow_jobs: WorkflowJob[] }>('server', serverUuid);
  t.strictSame(
    isIn.workflow_jobs.map(({ name }) => name),
    ['server-setup'],
  );
  await writeFile(go, '');
  const [job] = await cli.json<WorkflowJob[]>('workflow', 'list');
  t.match(await cli.run('workflow', 'wait', job?.uuid ?? ''), { code: 0, stderr: /cnapi: mark-set-up: OK/ });
  t.match(job?.params, { hostname: 'web-7', postsetup_script: '(secret)' });
  t.match(await cli.run('server', 'web-7'), { stdout: /^setup +true/m });
  const again = await cli.run('server', 'setup', 'web-7');
  t.match(again, { code: 0, stdout: '', stderr: 'cnapi: server web-7 is set up; nothing was done\n' });

  const other = await cli.run('server', 'setup', 'web-7', '--hostname', 'web-8');
  t.match(other, { code: 1, stderr: /Server web-7 is set up, so nothing was done/ });
  t.equal((await cli.run('server', 'setup', 'web-7', '--hostname', 'web-7')).code, 0, 'the name that it has');
  t.equal((await cli.run('server', 'setup', 'web-7', '--script', script)).code, 1);

  const unsure = await cli.run('server', 'factory-reset', 'web-7');
  t.match(unsure, { code: 2, stderr: /resets web-7: confirm that with --yes/ }, 'nobody can be asked');
  const reset = await cli.run('server', 'factory-reset', 'web-7', '--yes', '--wait');
  t.match(reset, { code: 0, stdout: /^server-factory-reset succeeded/, stderr: /cnapi: factory-reset: OK/ });
  t.match(await cli.run('server', 'web-7'), { stdout: /^setup +false/m });
});

t.test('what an agent reports that it does not allow is refused before anything begins', async (t) => {
  const app = await (await freshZone(t)).startApp();
  const cli = new Cli(t, [app.url]);
  const { serverUuid } = await settingsServer(t, [app], { allows: [], needsSetup: true });
  const rows: [args: string[], option: RegExp][] = [
    [['reboot', serverUuid, '--drain', '--wait'], /without --allow-reboot/],
    [['factory-reset', serverUuid, '--yes', '--wait'], /without --factory-reset/],
    [['setup', serverUuid, '--hostname', 'web-7', '--wait'], /without --allow-setup/],
  ];
  for (const [args, stderr] of rows) t.match(await cli.run('server', ...args), { code: 1, stdout: '', stderr });
  t.same(await cli.json('workflow', 'list'), []);
});

t.test('a server is paused, resumed and deleted', async (t) => {
  const app = await (await freshZone(t)).startApp();
  const cli = new Cli(t, [app.url]);
  const { serverUuid } = await settingsServer(t, [app], { machine: 'simulated' });
  t.match(await cli.run('server', 'pause', serverUuid), {
    code: 0,
    stdout: / is paused; cnapi server resume ends that\n$/,
  });
  const refused = await cli.run('exec', serverUuid, '--', 'true');
  t.match(refused, { code: 1, stderr: /AgentPaused/ });
  t.match(await cli.run('server', 'resume', serverUuid), { code: 0, stdout: / takes tasks\n$/ });
  t.equal((await cli.run('exec', serverUuid, '--', 'true')).code, 0);

  const uuid = randomUUID();
  await app.post(`/servers/${uuid}/sysinfo`, { sysinfo: { UUID: uuid, Hostname: 'gone' } });
  const unsure = await cli.run('server', 'delete', 'gone');
  t.match(unsure, { code: 2, stderr: /deletes the record of gone: confirm that with --yes/ });
  t.match(await cli.run('server', 'delete', 'gone', '--yes'), { code: 0, stdout: 'deleted gone\n' });
  t.equal((await cli.run('server', uuid)).code, 2);
});

t.test('the NIC tags of a server are shown and changed', async (t) => {
  const app = await (await freshZone(t)).startApp();
  const cli = new Cli(t, [app.url]);
  const { serverUuid } = await settingsServer(t, [app], { machine: 'simulated' });
  const nics = () => cli.json<{ name: string; mac: string; nic_tags: string[] }[]>('server', 'nics', serverUuid);
  const [{ name = '', mac = '' } = {}] = await nics();
  const change = (...args: string[]) => cli.run('server', 'nics', serverUuid, ...args);
  t.match(await change('--replace', `${name}=admin`, '--wait'), { code: 0, stdout: /^server-update-nics succeeded/ });
  t.match(await change('--update', `${mac}=external`, '--wait'), { code: 0 });
  t.strictSame((await nics())[0]?.nic_tags, ['admin', 'external']);
  t.match(await change(), { code: 0, stdout: new RegExp(`^${name} +${mac} +up +admin, external$`, 'm') });
  t.match(await change('--delete', `${name}=admin,external`, '--wait'), { code: 0 });
  t.strictSame((await nics())[0]?.nic_tags, []);
  const rows: [args: string[], stderr: RegExp][] = [
    [['--update', 'eth99=admin'], /The server has no NIC eth99; it has /],
    [['--update', name], /is not NIC=TAG,TAG, such as/],
    [['--update', `${name}=a b`], /is not NIC=TAG,TAG, such as/],
    [['--update', `${name}=a`, '--delete', `${name}=b`], /One request has one of/],
    [['--wait'], /--wait needs --update/],
  ];
  for (const [args, stderr] of rows) t.match(await change(...args), { code: 2, stderr }, args.join(' '));
});

t.test('a reset of a server with VMs is refused with the sentence of the instance', async (t) => {
  const app = await (await freshZone(t)).startApp();
  const cli = new Cli(t, [app.url]);
  const [legacy, vm] = [randomUUID(), randomUUID()];
  await app.post(`/servers/${legacy}/sysinfo`, { sysinfo: { UUID: legacy, Hostname: 'legacy' } });
  await app.post(`/servers/${legacy}/events/heartbeat`, {});
  await app.post(`/servers/${legacy}/events/status`, { vms: { [vm]: { uuid: vm } } });
  const stderr = /Server may not be reset because it has 1 vms \(Refused; /;
  t.match(await cli.run('server', 'factory-reset', 'legacy', '--yes'), { code: 1, stdout: '', stderr });
  t.match(await cli.run('server', 'setup', 'legacy', '--secret-script'), { code: 2, stderr: /needs --script/ });
  t.match(await cli.run('server', 'setup', 'legacy', '--script', '/no/file'), { code: 2, stderr: /cannot be read/ });
});
