/** The VM routes of a server whose agent is a legacy agent of Triton, as its CNAPI answers them. */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import { freshZone } from '../../../support/apps.ts';
import { startLegacyServer } from '../../../support/legacy-server.ts';
import { matchLists } from '../../../support/match-lists.ts';

const ADDRESS = { host: '10.0.0.5', port: 49_152 };
const IMAGE = randomUUID();

async function start(t: Test) {
  const app = await (await freshZone(t)).startApp();
  const agent = await startLegacyServer(t, app, { 'SDC Version': '7.0' });
  const uuid = randomUUID();
  const vms = `/servers/${agent.serverUuid}/vms`;
  const ended = async ({ id }: { id: string }) =>
    (await app.get<{ status: string; history: object[] }>(`/tasks/${id}/wait?timeout=60`)).body;
  /** The task that arrived last. */
  const arrived = () => agent.received.at(-1);
  const fails = (error: string, restCode?: string): [number, object] => [
    500,
    { error, ...(restCode !== undefined && { details: { restCode } }) },
  ];
  return { app, agent, uuid, vms, at: `${vms}/${uuid}`, ended, arrived, fails };
}

t.test('each change is posted to the agent with the parameters of its request', async (t) => {
  const { app, agent, uuid, vms, at, ended, arrived } = await start(t);
  const job = { jobid: 'of-the-workflow' };
  const kvm = { uuid, brand: 'kvm', disks: [{ image_uuid: IMAGE, size: 1 }], image: { files: [{ size: 1 }] } };
  const migration = { migrationTask: { action: 'sync', record: { vm_uuid: uuid } } };
  const image = { compression: 'gzip', imgapi_url: 'http://imgapi', manifest: { uuid: IMAGE }, incremental: true };
  const changes: [task: string, method: 'post' | 'put', path: string, params: Record<string, unknown>][] = [
    ['machine_create', 'post', vms, kvm],
    ['machine_update', 'post', `${at}/update`, { ram: 512, ...job }],
    ['machine_boot', 'post', `${at}/start`, { idempotent: true, ...job }],
    ['machine_shutdown', 'post', `${at}/stop`, { force: true, timeout: 5, idempotent: true }],
    ['machine_reboot', 'post', `${at}/reboot`, { update: { set_internal_metadata: { key: 'value' } } }],
    ['machine_kill', 'post', `${at}/kill`, { signal: 'SIGTERM' }],
    ['machine_reprovision', 'post', `${at}/reprovision`, { image_uuid: IMAGE }],
    ['machine_migrate', 'post', `${at}/migrate`, migration],
    ['machine_create_snapshot', 'put', `${at}/snapshots`, { snapshot_name: 'one' }],
    ['machine_rollback_snapshot', 'put', `${at}/snapshots/one/rollback`, {}],
    ['machine_create_image', 'post', `${at}/images`, image],
  ];
  for (const [task, method, path, params] of changes) {
    agent.answers.set(task, [200, {}]);
    const { status, body } = await app[method]<{ id: string }>(path, params);
    t.equal(status, 200, task);
    t.match(await ended(body), { status: 'complete' }, task);
    const snapshot = task === 'machine_rollback_snapshot' ? { snapshot_name: 'one' } : {};
    t.same(arrived()?.params, { server_uuid: agent.serverUuid, uuid, ...params, ...snapshot }, task);
    t.equal(arrived()?.task, task);
  }
  t.equal(await app.delete(`${at}/snapshots/one`), 200);
  t.equal(await app.delete(at), 200);
});

t.test('the NICs of VMs are updated by one task, on a platform that says its version', async (t) => {
  const networks = { original_network: { uuid: IMAGE }, networks: [{ uuid: IMAGE, gateway: '10.0.0.1' }] };
  const { app, agent, vms, ended, arrived } = await start(t);
  agent.answers.set('machine_update_nics', [200, {}]);
  const { status, body } = await app.post<{ id: string }>(`${vms}/nics/update`, networks);
  t.equal(status, 200);
  t.match(await ended(body), { status: 'complete' });
  t.equal(arrived()?.task, 'machine_update_nics');
  t.same(arrived()?.params, { server_uuid: agent.serverUuid, ...networks });
  const old = await startLegacyServer(t, app);
  t.match(await app.post(`/servers/${old.serverUuid}/vms/nics/update`, networks), {
    status: 400,
    body: { code: 'InvalidVersion' },
  });
  t.same(old.received, []);
});

t.test('questions wait for the agent and answer what it says', async (t) => {
  const { app, agent, uuid, at, arrived } = await start(t);
  const ids = { server_uuid: agent.serverUuid, uuid };
  const vm = { uuid, state: 'running', brand: 'lx', zonepath: '/zones/x', customer_metadata: { key: 'value' } };
  agent.answers.set('machine_load', [200, vm]);
  t.same(await app.get(`${at}?include_dni=true`), { status: 200, body: vm });
  t.match(arrived()?.params, { ...ids, include_dni: true });
  const processes = [{ pid: 1, command: 'init' }];
  agent.answers.set('machine_proc', [200, processes]);
  t.same(await app.get(`${at}/proc`), { status: 200, body: processes });
  const copied = { ...ADDRESS, containerPathStat: '{"name":"motd"}' };
  const questions: [task: string, path: string, params: object, passedOn: object, answer: object][] = [
    ['docker_exec', 'docker-exec', { command: { Cmd: ['ls'], Logs: false } }, {}, ADDRESS],
    ['docker_copy', 'docker-copy', { path: '/etc/motd' }, { mode: 'read' }, copied],
    ['docker_copy', 'docker-copy', { path: '/etc', mode: 'write', no_overwrite_dir: true }, {}, copied],
    ['docker_copy', 'docker-copy', { payload: { path: '/etc', mode: 'stat' } }, {}, copied],
    ['docker_stats', 'docker-stats', { payload: { stream: true } }, {}, ADDRESS],
    ['docker_build', 'docker-build', { payload: { dockerfile: 'FROM x' } }, {}, ADDRESS],
  ];
  for (const [task, path, params, passedOn, answer] of questions) {
    agent.answers.set(task, [200, answer]);
    t.same(await app.post(`${at}/${path}`, params), { status: 200, body: answer }, task);
    t.match(arrived(), { task, params: { ...ids, ...params, ...passedOn } });
  }
});

t.test('the information about a VM is read from the text of vmadm, or from an object', async (t) => {
  const { app, agent, uuid, at, arrived } = await start(t);
  const vnc = { vnc: { host: '10.0.0.6', port: 5_900, display: 0 } };
  for (const answer of [JSON.stringify(vnc, undefined, 2), vnc]) {
    agent.answers.set('machine_info', [200, answer]);
    t.same(await app.get(`${at}/vnc`), { status: 200, body: { host: '10.0.0.6', port: 5_900 } });
    matchLists(t, arrived()?.params, { uuid, types: ['vnc'] });
    t.same(await app.get(`${at}/info?info=vnc,block`), { status: 200, body: vnc });
    matchLists(t, arrived()?.params, { types: ['vnc', 'block'] });
  }
  await app.get(`${at}/info`);
  matchLists(t, arrived()?.params, { types: ['all'] });
  const unreadable = {
    status: 500,
    body: { code: 'InternalError', message: 'failed to parse JSON response from vm.info' },
  };
  for (const [path, answer] of [
    ['vnc', 'no JSON'],
    ['info', '["a list"]'],
    ['vnc', '{}'],
    ['vnc', '{"vnc":{"port":5900}}'],
  ] as const) {
    agent.answers.set('machine_info', [200, answer]);
    t.match(await app.get(`${at}/${path}`), unreadable, `${path}: ${answer}`);
  }
});

t.test("the agent's errors have the statuses and codes of Triton's CNAPI", async (t) => {
  const { app, agent, uuid, at, fails } = await start(t);
  const noVm = [404, { code: 'ResourceNotFound', message: `VM ${uuid} not found` }] as const;
  const failed = [500, { code: 'InternalError', message: 'as it says' }] as const;
  const copyFailed = (status: number, code: string) => [status, { code, message: 'as it says' }] as const;
  const exec = () => app.post(`${at}/docker-exec`, { command: {} });
  const copy = () => app.post(`${at}/docker-copy`, { path: '/x' });
  const stats = () => app.post(`${at}/docker-stats`);
  const build = () => app.post(`${at}/docker-build`);
  const cases: [
    task: string,
    call: () => Promise<{ status: number; body: unknown }>,
    error: [message: string, restCode?: string],
    expected: readonly [status: number, body: object],
  ][] = [
    ['machine_load', () => app.get(at), ['gone', 'VmNotFound'], noVm],
    ['machine_load', () => app.get(at), ['as it says'], failed],
    ['machine_info', () => app.get(`${at}/info`), ['gone', 'VmNotFound'], noVm],
    ['machine_info', () => app.get(`${at}/vnc`), ['as it says'], failed],
    ['machine_proc', () => app.get(`${at}/proc`), ['as it says', 'SomeCode'], failed],
    ['docker_exec', exec, ['as it says', 'VmNotRunning'], failed],
    ['docker_copy', copy, ['as it says', 'FileNotFound'], copyFailed(404, 'FileNotFound')],
    ['docker_copy', copy, ['as it says', 'PathNotDirectory'], copyFailed(400, 'PathNotDirectory')],
    ['docker_copy', copy, ['as it says', 'VmNotRunning'], copyFailed(409, 'VmNotRunning')],
    [
      'docker_copy',
      copy,
      ['as it says', 'DockerCopyStoppedContainerNoPlatformSupport'],
      copyFailed(409, 'DockerCopyStoppedContainerNoPlatformSupport'),
    ],
    ['docker_copy', copy, ['as it says'], failed],
    ['docker_stats', stats, ['ENOENT, no such file or directory'], noVm],
    ['docker_stats', stats, ['as it says'], failed],
    ['docker_build', build, ['as it says'], failed],
  ];
  for (const [task, call, error, [status, body]] of cases) {
    agent.answers.set(task, fails(...error));
    t.match(await call(), { status, body }, `${task}: ${error.join(' ')}`);
  }
});

t.test('a task that the agent does not know, or refuses, fails with its code', async (t) => {
  const { app, agent, vms, at, ended } = await start(t);
  const failedWith = (code: string) => ({
    status: 'failure',
    history: [{ name: 'error', event: { error: { code } } }, { name: 'finish' }],
  });
  agent.isPaused = true;
  const { body } = await app.post<{ id: string }>(`${at}/stop`);
  t.match(await ended(body), failedWith('AgentPaused'));
  agent.isPaused = false;
  t.match(await app.post(`${at}/docker-build`), {
    status: 500,
    body: { code: 'InternalError', message: "Unknown task, 'docker_build'" },
  });
  const unknown = await app.post<{ id: string }>(`${vms}/nics/update`, { networks: [] });
  t.match(await ended(unknown.body), failedWith('UnknownTask'));
});
