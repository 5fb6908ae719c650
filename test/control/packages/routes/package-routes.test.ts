/** Triton's routes for packages of agents, with a scripted agent. */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import { freshZone } from '../../../support/apps.ts';
import { until } from '../../../support/until.ts';
import { VmAgent } from '../../vms/vm-agent.ts';

async function start(t: Test) {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const agent = await VmAgent.start(app);
  t.teardown(() => agent.agent.close());
  return { app, agent, at: `/servers/${agent.machine.serverUuid}` };
}

t.test('install-agent and uninstall-agents are tasks with the parameters of their requests', async (t) => {
  const { app, agent, at } = await start(t);
  const requests: [string, string, object][] = [
    ['install-agent', 'agent_install', { image_uuid: randomUUID() }],
    ['install-agent', 'agent_install', { package_name: 'net-agent', package_file: '/var/tmp/net-agent.sh' }],
    ['install-agent', 'agent_install', { downgrade: true, retry: true }],
    ['install-agent', 'agent_install', {}],
    ['uninstall-agents', 'agents_uninstall', { agents: ['net-agent', 'vm-agent'] }],
  ];
  for (const [route, name, params] of requests) {
    const { status, body } = await app.post<{ id: string }>(`${at}/${route}`, params);
    t.equal(status, 200);
    t.same(Object.keys(body), ['id']);
    const task = await until(() => agent.received.get(body.id), 'the task');
    t.same([task.name, task.params], [name, params]);
    t.match(await app.get(`/tasks/${body.id}/wait?timeout=60`), { status: 200, body: { status: 'complete' } });
  }
  const recorded = async () => {
    const { body } = await app.get<{ object: string }[]>('/audit?action=UninstallAgents');
    return body.some(({ object }) => agent.received.has(object));
  };
  await until(recorded, 'the record of the audit');
});

t.test('a password in the source of a package is shown to the agent alone', async (t) => {
  const { app, agent, at } = await start(t);
  const source = 'http://user:hush@h/a.tar';
  const requests: [string, object, string][] = [
    ['install-agent', { package_file: source }, 'package_file'],
    ['tasks', { task: 'agent_install', params: { package_file: source } }, 'package_file'],
    ['tasks', { task: 'image_ensure_present', params: { image_uuid: randomUUID(), url: source } }, 'url'],
  ];
  for (const [route, body, name] of requests) {
    const { id } = (await app.post<{ id: string }>(`${at}/${route}`, body)).body;
    const task = await until(() => agent.received.get(id), 'the task');
    t.same([task.params[name], task.params.secret_params], [source, [`/${name}`]], route);
    for (const path of [`/tasks/${id}/wait?timeout=60`, '/tasks', `${at}/task-history`, '/audit'])
      t.notMatch(JSON.stringify((await app.get(path)).body), /hush/, path);
  }
});

t.test('refusals are those of Triton', async (t) => {
  const { app, agent, at } = await start(t);
  t.match(await app.post(`/servers/${randomUUID()}/install-agent`, {}), { status: 404 });
  for (const agents of [undefined, 'all', 5])
    t.match(await app.post(`${at}/uninstall-agents`, { agents }), { status: 500, body: { code: 'InvalidParameters' } });
  const wrong = {
    package_file: ['x'.repeat(4_001), { a: 1 }, 5],
    package_name: ['x'.repeat(65), {}],
    image_uuid: [[]],
  };
  for (const [name, values] of Object.entries(wrong))
    for (const value of values) {
      const { status, body } = await app.post<{ code: string; errors: { field: string }[] }>(`${at}/install-agent`, {
        [name]: value,
      });
      t.same([status, body.code, body.errors.map(({ field }) => field)], [500, 'InvalidParameters', [name]]);
    }
  const longest = { package_file: `/${'x'.repeat(3_999)}` };
  t.match(await app.post(`${at}/install-agent`, longest), { status: 200 });
  const versions: Record<string, number> = { '2.7.9': 412, '1.9.0': 412, '2.8.0': 200, '2.10.0': 200, unknown: 200 };
  for (const [version, status] of Object.entries(versions)) {
    await app.post(at, {
      agents: [
        { name: 'vm-agent', version: '1.0.0' },
        { name: 'cn-agent', version },
      ],
    });
    t.match(await app.post(`${at}/uninstall-agents`, { agents: ['a'] }), { status }, version);
  }
  const refused = await app.post(`${at}/uninstall-agents`, { agents: ['a'] });
  t.equal(refused.status, 200);
  t.equal([...agent.received.values()].filter(({ name }) => name !== 'agents_uninstall').length, 1);
});
