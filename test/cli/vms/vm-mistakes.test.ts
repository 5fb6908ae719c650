/**
 * Mistakes in `cnapi vm` and `cnapi image`: each is refused with what to do, before the agent gets
 * a task.
 */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { VmAgent } from '../../control/vms/vm-agent.ts';
import { freshZone } from '../../support/apps.ts';
import { startAgents } from '../../support/simulated-agents.ts';
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

  await t.test('a wrong value is refused before there is a task', async (t) => {
    const before = tasks();
    for (const [line, stderr] of [
      ['vm kill web --signal FOO', /--signal FOO is not a signal such as TERM/],
      ['vm stop web --timeout soon', /--timeout soon is not a duration such as 90s/],
      ['vm stop web --timeout 2h', /--timeout 2h is more than 3600s/],
      ['image delete scripted nosuch', /nosuch is not the uuid of an image/],
      ['image get scripted nosuch', /nosuch is not the uuid of an image/],
    ] as const)
      t.match(await cli.run(...line.split(' ')), { code: 2, stdout: '', stderr }, line);
    t.equal(tasks(), before);
  });

  await t.test('a failure names the VM as the user did, and says what to do', async (t) => {
    const uuid = web;
    for (const [line, code, message, stderr] of [
      ['stop', 'VmNotRunning', `VM ${uuid} does not run; start it first`, /web could not be stopped: it does not run;/],
      ['start', 'VmAlreadyRunning', `VM ${uuid} is running`, /web could not be started: it runs already;/],
      ['reboot', 'VmIsBusy', `VM ${uuid} is busy`, /web could not be rebooted: it is busy \(VmIsBusy\);/],
      [
        'delete',
        'UnknownTask',
        'what?',
        /web could not be deleted: what\? .*\n {2}The agent of the server runs without --containers/,
      ],
    ] as const) {
      agent.answer = () => ({ error: { code, message } });
      t.match(await cli.run('vm', line, 'web'), { code: 1, stdout: '', stderr });
    }
    for (const [code, message, stderr] of [
      ['InvalidParameters', 'internal_metadata.docker:cmd is missing', /add --cmd COMMAND/],
      ['ImageNotFound', 'There is no image', /\n {2}cnapi image load SERVER SOURCE/],
    ] as const) {
      agent.answer = () => ({ error: { code, message } });
      t.match(await cli.run('vm', 'create', 'scripted', image), { code: 1, stdout: '', stderr });
    }
  });

  await t.test('an agent that does not know a stream is not a broken connection', async (t) => {
    agent.answer = () => ({ error: { code: 'UnknownTask', message: 'Unknown task' } });
    const { code, stderr } = await cli.run('vm', 'logs', 'web');
    t.equal(code, 1);
    t.match(stderr, /^cnapi: Unknown task \(UnknownTask\)\. The agent of the server runs without --containers/);
    t.notMatch(stderr, 'the connection broke');
  });

  await t.test('whoever waits for a stop is told for how long, and that it continues without them', async (t) => {
    agent.answer = () => undefined;
    const stopping = cli.start(['vm', 'stop', 'web']);
    await stopping.says('waiting for web to end; it is killed in 58 s (--force kills it immediately)');
    stopping.child.kill('SIGINT');
    t.match(await stopping.ended, {
      code: 130,
      stderr: /task [0-9a-f-]{36} continues; cnapi task [0-9a-f-]{36} shows/,
    });
    const rebooting = cli.start(['vm', 'reboot', 'web', '--timeout', '1m30s']);
    await rebooting.says('it is killed in 88 s');
    rebooting.child.kill('SIGTERM');
    t.equal((await rebooting.ended).code, 143);
  });

  await t.test('a VM is found by the beginning of its uuid, and by nothing that two VMs have', async (t) => {
    agent.answer = () => ({ result: {} });
    const [one, two] = ['beef0001-0000-4000-8000-000000000001', 'beef0001-0000-4000-8000-000000000002'];
    const [first, named] = ['00000000-0000-4000-8000-000000000001', 'feed0001-0000-4000-8000-000000000001'];
    agent.report(
      { uuid: one, alias: 'one', state: 'running' },
      { uuid: two, alias: 'two', state: 'running' },
      { uuid: first, alias: 'first', state: 'running' },
      { uuid: named, alias: '00000000', state: 'running' },
    );
    await until(async () => (await app.get(`/vms/${named}`)).status === 200, 'the VMs to be stored');
    t.match(await cli.run('vm', 'start', two), { code: 0 });
    t.match(await cli.run('vm', 'start', two.slice(0, -1)), { code: 2, stderr: /several VMs/ });
    t.match(await cli.run('vm', 'start', 'FEED0001'), { code: 0, stdout: 'started FEED0001\n' });
    t.match(await cli.run('vm', 'start', 'feed000'), { code: 2, stderr: /There is no VM feed000/ }, 'too short');
    t.match(await cli.run('vm', 'start', '00000000'), { code: 2, stderr: new RegExp(`${named}.*${first}`) });
    t.match(await cli.run('vm', 'start', '00000000-0000'), { code: 0 }, 'the first of all uuids');
  });

  await t.test('a create says what the next command would stumble over', async (t) => {
    const uuid = randomUUID();
    agent.answer = () => ({ result: { vm: { uuid, alias: 'one', state: 'stopped', exit_status: 127 } } });
    t.match(await cli.run('vm', 'create', 'scripted', `uuid=${uuid}`, image, 'alias=one'), {
      code: 0,
      stdout: `${uuid}\n`,
      stderr: new RegExp(
        `VM beef0001-.* has the alias one, too(.|\n)*its program has ended with 127; see cnapi vm logs ${uuid}`,
      ),
    });
    const other = randomUUID();
    agent.answer = () => ({ result: { vm: { uuid: other, alias: 'other', state: 'running' } } });
    const plain = await cli.run('vm', 'create', 'scripted', `uuid=${other}`, image, 'alias=other');
    t.same(plain, { code: 0, stdout: `${other}\n`, stderr: `cnapi: VM ${other}\n` });
  });

  await t.test('a list of a state that does not exist names those that do', async (t) => {
    t.match(await cli.run('vm', 'list', '--state', 'nosuch'), {
      code: 0,
      stderr: /the states are provisioning, running/,
    });
    t.notMatch((await cli.run('vm', 'list', '--state', 'failed')).stderr, 'the states are');
  });

  await t.test('ports are not forwarded to a VM that does not run', async (t) => {
    const stopped = randomUUID();
    agent.report({ uuid: stopped, alias: 'stopped', state: 'stopped' });
    await until(async () => (await app.get(`/vms/${stopped}`)).status === 200, 'the VM to be stored');
    const refused = { code: 1, stdout: '', stderr: /stopped is stopped; cnapi vm start starts/ };
    t.match(await cli.start(['vm', 'port-forward', 'stopped', ':80']).ended, refused);
  });

  await t.test('nothing can be forwarded to a server whose agent is gone', async (t) => {
    agent.agent.close();
    const { serverUuid } = agent.machine;
    await until(async () => {
      return (await app.get<{ status: string }>(`/servers/${serverUuid}`)).body.status === 'unknown';
    }, 'the server to be unknown');
    for (const line of [
      ['port-forward', serverUuid, ':80'],
      ['vm', 'port-forward', 'stopped', ':80'],
    ])
      t.match(await cli.start(line).ended, { code: 1, stdout: '', stderr: /the agent of its server is not connected/ });
  });
});

t.test('a server without VMs says why', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const [agent] = await startAgents(t, [app], 1);
  const server = agent?.serverUuid ?? '';
  const cli = new Cli(t, [app.url]);
  const refused = {
    code: 1,
    stdout: '',
    stderr: /\n {2}The agent of the server runs without --containers.*; or it is simulated/,
  };
  t.match(await cli.run('vm', 'create', server, `image_uuid=${randomUUID()}`), refused);
  t.match(await cli.run('image', 'load', server, '/srv/base.tar'), refused);
  t.match(await cli.start(['cp', '/etc/hostname', `${server}:/tmp/`]).ended, refused);
});
