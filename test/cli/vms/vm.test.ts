import { randomUUID } from 'node:crypto';
import path from 'node:path';
import t from 'tap';
import type { StoredVm } from '../../../lib/protocol/api/vms.ts';
import { VmAgent } from '../../control/vms/vm-agent.ts';
import { freshZone } from '../../support/apps.ts';
import { until } from '../../support/until.ts';
import { Cli } from '../rig.ts';

t.test('VMs on the command line', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const agent = await VmAgent.start(app);
  t.teardown(() => agent.agent.close());
  const cli = new Cli(t, [app.url]);
  const [uuid, image] = [randomUUID(), randomUUID()];
  let state = 'running';
  let snapshots: { name: string; created_at: string }[] = [];
  agent.answer = ({ name }) => {
    if (name === 'machine_kill') return { error: { code: 'VmNotRunning', message: 'it does not run' } };
    if (name === 'machine_shutdown') state = 'stopped';
    const vm = { uuid, alias: 'web', state, snapshots, last_modified: new Date().toISOString() };
    return { result: name === 'machine_load' ? vm : name === 'machine_destroy' ? {} : { vm } };
  };
  const paramsOf = (name: string) => [...agent.received.values()].findLast((task) => task.name === name)?.params;

  t.match(await cli.run('vm', 'list'), { code: 0, stderr: /There are no such VMs/ });
  t.match(
    await cli.run('vm', 'create', 'scripted', `uuid=${uuid}`, `image_uuid=${image}`, 'alias=web', 'tags={"a":1}'),
    { code: 0, stdout: `${uuid}\n` },
  );
  t.match(paramsOf('machine_create'), { alias: 'web', image_uuid: image, tags: { a: 1 } });
  const file = path.join(
    t.testdir({ 'vm.json': '{"alias":"db","customer_metadata":{"password":"secret"}}' }),
    'vm.json',
  );
  const others = ['--cmd', 'sleep 5', '--env', 'A=b=c', '--file', file, '--detach'];
  const created = await cli.run('vm', 'create', 'scripted', `image_uuid=${image}`, 'alias=db-2', ...others);
  t.equal(created.code, 0, created.stderr);
  await until(() => paramsOf('machine_create')?.alias === 'db-2', 'the second create');
  t.match(paramsOf('machine_create'), {
    customer_metadata: { password: 'secret' },
    internal_metadata: { 'docker:cmd': '["/bin/sh","-c","sleep 5"]', 'docker:env': '["A=b=c"]' },
  });
  for (const [option, value, expected] of [
    ['--cmd', '[1]', /--cmd is not a JSON list of texts/],
    ['--cmd', '[', /--cmd is not JSON/],
    ['--env', 'A', /--env A is not NAME=VALUE/],
    ['--file', '/nowhere', /--file \/nowhere/],
  ] as const)
    t.match(await cli.run('vm', 'create', 'scripted', option, value), { code: 2, stderr: expected });
  t.match(await cli.run('vm', 'list', '--server', 'scripted', '--state', 'running'), { stdout: /web .*scripted/ });
  t.match(await cli.run('vm', 'get', 'web'), { stdout: /running/ });
  t.match(await cli.run('vm', 'stop', 'web', '--timeout', '5'), { code: 0, stdout: 'stopped web\n' });
  t.match(paramsOf('machine_shutdown'), { timeout: 5, uuid });
  t.equal((await cli.json<StoredVm[]>('vm', 'list', '--alias', 'w*'))[0]?.state, 'stopped');
  t.match(await cli.run('vm', 'kill', 'web', '--signal', 'TERM'), {
    code: 1,
    stderr: /web could not be sent a signal: it does not run/,
  });
  t.match(await cli.json('vm', 'update', 'web', 'max_physical_memory=512'), { status: 'complete' });
  t.match(await cli.json('vm', 'start', uuid, '--detach'), { id: /^[0-9a-f-]{36}$/ });
  for (const command of ['create', 'rollback', 'delete'])
    t.match(await cli.run('vm', 'snapshot', command, 'web', 'one'), { code: 0 }, command);
  t.match(await cli.run('vm', 'snapshot', 'list', 'web'), { code: 0, stderr: /web has no snapshots/ });
  snapshots = [{ name: 'one', created_at: '2030-01-31T12:00:00.000Z' }];
  t.match(await cli.run('vm', 'snapshot', 'list', 'web'), { code: 0, stdout: /^one +2030-01-31 12:00:00Z$/m });
  t.same(await cli.json('vm', 'snapshot', 'list', 'web'), snapshots);
  t.match(await cli.run('vm', 'create', 'scripted', 'alias=x'), { code: 2, stderr: /image_uuid/ });
  t.match(await cli.run('vm', 'create', 'image_ur=x'), { code: 2, stderr: /image_ur is not a field .*image_url/ });
  t.match(await cli.run('vm', 'create', `image_uuid=${randomUUID()}`), { stderr: /No compute resources available/ });
  t.match(await cli.run('vm', 'stop', 'nothing'), { code: 2, stderr: /There is no VM nothing/ });
  const other = await VmAgent.start(app);
  t.teardown(() => other.agent.close());
  const squatter = randomUUID();
  other.report({ uuid: squatter, alias: 'web', state: 'running' });
  await until(async () => (await app.get(`/vms/${squatter}`)).status === 200, 'the other VM to be stored');
  t.match(await cli.run('vm', 'stop', 'web'), {
    code: 2,
    stderr: /There are several VMs web; give the uuid of one: .* on .*, .* on /,
  });
  for (const one of [uuid, squatter, other.machine.serverUuid.slice(0, 8)])
    t.match((await cli.run('vm', 'stop', 'web')).stderr, one, 'each VM with its server');
  t.match(await cli.run('vm', 'stop', uuid), { code: 0 }, 'its uuid always names one VM');
  other.report();
  await until(async () => (await app.get(`/vms/${squatter}`)).status === 404, 'the other VM to go');
  t.match(await cli.run('vm', 'update', 'web', 'what'), { code: 2, stderr: /what is not FIELD=VALUE/ });
  t.match(await cli.run('vm', 'delete', 'web'), { code: 0, stdout: 'deleted web\n' });
  t.same(await cli.json('vm', 'list', '--alias', 'web'), []);
  t.match(await cli.run('vm', 'delete', uuid), { code: 0, stderr: /There is no VM/ }, 'a delete can be repeated');
  t.match(await cli.run('vm', 'delete', 'web'), { code: 2, stderr: /There is no VM web/ }, 'by uuid');

  const left = randomUUID();
  agent.report({ uuid: left, alias: 'web', state: 'running' });
  await until(async () => (await app.get(`/vms/${left}`)).status === 200, 'the VM to be stored');
  agent.agent.close();
  await until(async () => {
    return (await app.get<StoredVm>(`/vms/${left}`)).body.server_status === 'unknown';
  }, 'the server to be unknown');
  t.match(await cli.run('vm', 'list'), { stdout: /SERVER STATUS\n(.*\n)*.*running .*unknown/ });
  t.match(await cli.run('vm', 'get', 'web'), { code: 0, stdout: /running/, stderr: /The server does not answer/ });
});
