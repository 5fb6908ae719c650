import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import { freshZone } from '../../../support/apps.ts';
import { matchLists } from '../../../support/match-lists.ts';
import { until } from '../../../support/until.ts';
import { VmAgent } from '../vm-agent.ts';

interface Created {
  id: string;
}

interface Refused {
  code: string;
  message: string;
  errors?: { field: string }[];
}

const IMAGE = randomUUID();

async function start(t: Test) {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const agent = await VmAgent.start(app);
  t.teardown(() => agent.agent.close());
  const server = agent.machine.serverUuid;
  const vms = `/servers/${server}/vms`;
  const create = (uuid: string, fields: object = {}, path = vms) =>
    app.post<Created & Refused>(path, { uuid, image_uuid: IMAGE, ...fields });
  const ended = async ({ id }: Created) =>
    (await app.get<{ status: string }>(`/tasks/${id}/wait?timeout=60`)).body.status;
  const listed = async (query = '') =>
    (await app.get<{ vms: { uuid: string; state: string }[] }>(`/vms${query}`)).body.vms;
  return { zone, app, agent, server, vms, create, ended, listed };
}

t.test('each change is a task with the parameters of its request', async (t) => {
  const { app, agent, vms, server } = await start(t);
  const uuid = randomUUID();
  const at = `${vms}/${uuid}`;
  const requests: [task: string, call: () => Promise<{ status: number; body: Created }>, params: object][] = [
    ['machine_boot', () => app.post(`${at}/start`, { idempotent: 'true', extra: 1 }), { idempotent: true, extra: 1 }],
    ['machine_boot', () => app.post(`${at}/start`, { update: { set_internal_metadata: {} } }), { update: {} }],
    ['machine_shutdown', () => app.post(`${at}/stop`, { force: true, timeout: '5' }), { force: true, timeout: 5 }],
    ['machine_reboot', () => app.post(`${at}/reboot`), {}],
    ['machine_kill', () => app.post(`${at}/kill`, { signal: 9 }), { signal: 9 }],
    ['machine_update', () => app.post(`${at}/update`, { uuid: 'another', ram: 5 }), { ram: 5 }],
    ['machine_reprovision', () => app.post(`${at}/reprovision`, { image_uuid: IMAGE }), { image_uuid: IMAGE }],
    ['machine_create_snapshot', () => app.put(`${at}/snapshots`, { snapshot_name: 'one' }), { snapshot_name: 'one' }],
    ['machine_rollback_snapshot', () => app.put(`${at}/snapshots/one/rollback`), { snapshot_name: 'one' }],
    [
      'machine_create_image',
      () => app.post(`${at}/images`, { compression: 'gzip', imgapi_url: 'http://i', manifest: { uuid } }),
      { manifest: { uuid } },
    ],
  ];
  for (const [name, call, params] of requests) {
    const { status, body } = await call();
    t.equal(status, 200, name);
    const task = await until(() => agent.received.get(body.id), `the task ${name}`);
    t.match(task, { name, params: { server_uuid: server, uuid, ...params } });
  }
  t.equal(await app.delete(`${at}/snapshots/one`), 200);
  for (const what of ['a delete', 'a repeated delete']) t.equal(await app.delete(at), 200, what);
  t.match(await app.get(`/audit?action=StopVm`), { status: 200 });
});

t.test('a change of a network is one task for all VMs of a server', async (t) => {
  const { app, agent, vms, server, ended } = await start(t);
  const network = { uuid: randomUUID(), gateway: '10.0.0.1', resolvers: ['10.0.0.2'] };
  const change = { original_network: network, networks: [{ ...network, gateway: '10.0.0.9' }], jobid: 'one' };
  const { status, body } = await app.post<Created>(`${vms}/nics/update`, change);
  t.equal(status, 200);
  t.equal(await ended(body), 'complete');
  t.match(agent.received.get(body.id)?.name, 'machine_update_nics');
  t.same(agent.received.get(body.id)?.params, { server_uuid: server, ...change });
});

t.test('refusals have codes, and name what is wrong', async (t) => {
  const { app, vms, create, zone } = await start(t);
  const uuid = randomUUID();
  const at = `${vms}/${uuid}`;
  const refusals: [call: () => Promise<{ status: number; body: unknown }>, status: number, body: object][] = [
    [() => app.get(`${vms}/nonsense`), 409, { code: 'InvalidArgument', message: 'Invalid vm_uuid' }],
    [() => app.post(vms, { uuid }), 400, { code: 'InvalidParameters', errors: [{ field: 'image_uuid' }] }],
    [
      () => app.post(vms, { image_uuid: IMAGE }),
      500,
      { code: 'InvalidParameters', errors: [{ field: 'uuid', message: /value is missing .*; choose a uuid/ }] },
    ],
    [() => create(uuid, { max_physical_memory: 'much' }), 400, { errors: [{ field: 'max_physical_memory' }] }],
    [() => create(uuid, { brand: 'oci', disks: [{ size: 1 }] }), 400, { errors: [{ field: 'disks' }] }],
    [
      () => app.post(`${at}/start`, { update: { ram: 1 } }),
      500,
      { code: 'InvalidArgument', message: 'Vm.start update param only allows set_internal_metadata, received: [ram]' },
    ],
    [() => app.post(`${at}/reprovision`), 500, { errors: [{ field: 'image_uuid' }] }],
    [
      () => app.post(`${at}/migrate`, { migrationTask: { action: 'sync' } }),
      500,
      { errors: [{ field: 'migrationTask.record' }] },
    ],
    [() => app.post(`${at}/migrate`, { migrationTask: { action: 'sync', record: {} } }), 501, { code: 'NotSupported' }],
    [() => app.get(`${at}/vnc`), 501, { code: 'NotSupported' }],
    [() => app.post(`${at}/docker-exec`), 500, { errors: [{ field: 'command' }] }],
    [() => app.post(`${at}/docker-exec`, { command: {} }), 400, { errors: [{ field: 'command.Cmd' }] }],
    [() => app.post(`${at}/docker-copy`), 400, { errors: [{ field: 'path' }] }],
    [
      () => app.post(`${at}/docker-stats`, { payload: { doStream: 1 } }),
      400,
      { errors: [{ field: 'payload.doStream' }] },
    ],
    [() => app.post(`${at}/docker-build`), 501, { code: 'NotSupported' }],
    [() => app.get(`/vms/${uuid}`), 404, { code: 'ResourceNotFound', message: `VM ${uuid} not found` }],
    [() => app.get(`/servers/${randomUUID()}/vms`), 404, { code: 'ResourceNotFound' }],
    [() => app.post(`/servers/${randomUUID()}/vms/${uuid}/stop`), 404, { code: 'ResourceNotFound' }],
  ];
  for (const [call, status, body] of refusals) {
    const answered = await call();
    t.match(answered, { status, body }, JSON.stringify(body));
  }
  t.same((await zone.database.query('select 1 from cnapi_vms')).rows, [], 'nothing was claimed');
});

t.test('questions wait for the agent, and its errors are those of the VM', async (t) => {
  const { app, agent, vms } = await start(t);
  const uuid = randomUUID();
  agent.answer = ({ name, params }) =>
    params.uuid === uuid
      ? { result: { uuid, state: 'running', asked: name, types: params.types } }
      : { error: { code: params.uuid === IMAGE ? 'Failed' : 'VmNotFound', message: 'as the agent says' } };
  t.match(await app.get(`${vms}/${uuid}`), { status: 200, body: { uuid, state: 'running', asked: 'machine_load' } });
  matchLists(t, await app.get(`${vms}/${uuid}/info?info=vnc,spice`), { body: { types: ['vnc', 'spice'] } });
  matchLists(t, await app.get(`${vms}/${uuid}/info`), { body: { types: ['all'] } });
  t.match(await app.get(`${vms}/${uuid}/proc`), { body: { asked: 'machine_proc' } });
  const missing = randomUUID();
  t.match(await app.get(`${vms}/${missing}`), { status: 404, body: { message: `VM ${missing} not found` } });
  t.match(await app.get(`${vms}/${IMAGE}`), {
    status: 500,
    body: { code: 'InternalError', message: 'as the agent says' },
  });
  agent.answer = () => ({ error: { code: 'NoContainers', message: 'started without --containers' } });
  t.match(await app.get(`${vms}/${uuid}/proc`), {
    status: 501,
    body: { code: 'NotSupported', message: 'started without --containers' },
  });
});

t.test('a question is refused if the database could not read its parameters at the end of its task', async (t) => {
  const { app, agent, vms } = await start(t);
  const at = `${vms}/${randomUUID()}`;
  for (const query of ['undeclared=%00', 'a%00b=1', 'info=%00'])
    for (const question of ['', '/info', '/proc'])
      t.match(
        await app.get<Refused>(`${at}${question}?${query}`),
        { status: 409, body: { code: 'InvalidArgument', message: /NUL character/ } },
        `${question}?${query}`,
      );
  t.equal(agent.received.size, 0);
});

t.test('the end of a task, the state of its VM and the event are visible together', async (t) => {
  const { zone, app, agent, create, ended, listed, server, vms } = await start(t);
  const other = await zone.startApp();
  const uuid = randomUUID();
  agent.answer = () => undefined;
  const { body } = await create(uuid, { alias: 'web', owner_uuid: IMAGE });
  matchLists(t, await listed(), [
    { uuid, server_uuid: server, alias: 'web', state: 'provisioning', owner_uuid: IMAGE },
  ]);
  const task = await until(() => agent.received.get(body.id), 'the task');
  const waiting = ended(body);
  const reportedAt = new Date().toISOString();
  const vm = { uuid, alias: 'web', state: 'running', brand: 'oci', image_uuid: IMAGE, last_modified: reportedAt };
  agent.agent.send({
    type: 'task_end',
    id: task.id,
    attempt: task.attempt,
    outcome: 'complete',
    result: { vm },
    reportedAt,
  });
  t.equal(await waiting, 'complete');
  matchLists(t, (await other.get<{ vms: object[] }>('/vms')).body.vms, [{ uuid, state: 'running' }]);
  matchLists(t, (await app.get(vms)).body, [{ uuid, state: 'running', brand: 'oci' }]);
  t.match((await app.get(`/servers/${server}`)).body, { vms: { [uuid]: { state: 'running' } } });
  t.match(await app.get(`/vms/${uuid}`), { status: 200, body: { uuid, server_uuid: server } });
  for (const query of [
    `state=running`,
    `alias=we*`,
    `alias=web`,
    `owner_uuid=`,
    `server_uuid=${server}&image_uuid=${IMAGE}`,
  ])
    t.equal((await listed(`?${query}`)).length, query === 'owner_uuid=' ? 0 : 1, query);
  t.same(await listed('?state=stopped'), []);
});

t.test('a change of state that an agent reports is seen at each instance within 500 ms', async (t) => {
  const { zone, agent, listed } = await start(t);
  const other = await zone.startApp();
  const uuid = randomUUID();
  const stateAtOther = async () => (await other.get<{ vms: { state: string }[] }>('/vms')).body.vms[0]?.state;
  for (const state of ['running', 'stopping', 'stopped']) {
    const sentAt = performance.now();
    agent.report({ uuid, state });
    await until(async () => (await stateAtOther()) === state, `the state ${state}`);
    t.comment(`${state} after ${Math.round(performance.now() - sentAt)} ms`);
  }
  matchLists(t, await listed(), [{ uuid, state: 'stopped' }]);
  agent.report();
  await until(async () => (await listed()).length === 0, 'the VM to be gone');
});

t.test('a create that is repeated gives the same task, and another one is refused', async (t) => {
  const { zone, agent, create, ended, app, listed } = await start(t);
  const other = await VmAgent.start(app);
  t.teardown(() => other.agent.close());
  const there = `/servers/${other.machine.serverUuid}/vms`;
  const uuid = randomUUID();
  agent.answer = ({ name }) => ({ result: name === 'machine_create' ? { vm: { uuid, state: 'running' } } : {} });
  const all = await Promise.all([create(uuid), create(uuid), create(uuid), create(uuid, {}, there)]);
  const taken = all.filter(({ status }) => status === 200);
  t.equal(new Set(taken.map(({ body }) => body.id)).size, 1);
  t.equal(all.filter(({ status, body }) => status === 409 && body.code === 'VmExists').length, 4 - taken.length);
  const isHere = all[0]?.status === 200;
  const [path, elsewhere] = isHere
    ? [`/servers/${agent.machine.serverUuid}/vms`, there]
    : [there, `/servers/${agent.machine.serverUuid}/vms`];
  if (!isHere) other.answer = agent.answer;
  const id = taken[0]?.body.id ?? '';
  t.equal((await create(uuid, {}, path)).body.id, id);
  t.match(await create(uuid, { alias: 'different' }, path), { status: 409, body: { code: 'VmExists' } });
  t.match(await create(uuid, {}, elsewhere), { status: 409, body: { code: 'VmExists' } });
  const viaTasks = { task: 'machine_create', params: { uuid, image_uuid: IMAGE } };
  t.match(await app.post(elsewhere.replace('vms', 'tasks'), viaTasks), { status: 409, body: { code: 'VmExists' } });
  if (isHere) t.equal(await ended({ id }), 'complete');
  t.equal((await create(uuid, {}, path)).body.id, id, 'also after its end');
  for (let twice = 0; twice < 2; twice++) t.equal(await app.delete(`${path}/${uuid}`), 200);
  await until(async () => (await listed()).length === 0, 'the VM to be gone');
  const again = await create(uuid, {}, elsewhere);
  t.equal(again.status, 200);
  t.not(again.body.id, id);
  t.same((await zone.database.query('select count(*)::int as count from cnapi_vms')).rows, [{ count: 1 }]);
});

t.test('a create that fails releases its uuid', async (t) => {
  const { agent, create, ended, listed } = await start(t);
  const uuid = randomUUID();
  agent.answer = () => ({ error: { code: 'ImageNotFound', message: 'there is no such image' } });
  const first = await create(uuid);
  t.equal(await ended(first.body), 'failure');
  t.same(await listed(), []);
  const second = await create(uuid);
  matchLists(t, [second.status, second.body.id === first.body.id], [200, false]);
});

t.test('while a server is unknown, its VMs are shown with that, as they were reported last', async (t) => {
  const { app, agent, listed, server } = await start(t);
  const uuid = randomUUID();
  agent.report({ uuid, state: 'running' });
  await until(async () => (await listed()).length === 1, 'the VM to be stored');
  t.match(await listed(), { 0: { uuid, state: 'running', server_status: 'running', as_of: /^20/ } });
  agent.agent.close();
  await until(async () => {
    return (await app.get<{ status: string }>(`/servers/${server}`)).body.status === 'unknown';
  }, 'the server to be unknown');
  const shown = { uuid, state: 'running', server_status: 'unknown', as_of: /^20/ };
  t.match(await listed(), { 0: shown });
  t.match((await app.get(`/vms/${uuid}`)).body, shown);
});

t.test('a wrong field is refused before there is a task', async (t) => {
  const { app, agent, vms, zone } = await start(t);
  const at = `${vms}/${randomUUID()}`;
  const stored = { compression: 'gzip', imgapi_url: 'http://i' };
  const manifest = { uuid: randomUUID() };
  const wrong: [what: string, field: string, call: () => Promise<{ status: number; body: unknown }>][] = [
    ['update', 'max_physical_memory', () => app.post(`${at}/update`, { max_physical_memory: 'much' })],
    ['update', 'add_nics', () => app.post(`${at}/update`, { add_nics: [{}] })],
    ['kill', 'signal', () => app.post(`${at}/kill`, { signal: 'S'.repeat(30) })],
    ['reprovision', 'image_uuid', () => app.post(`${at}/reprovision`, { image_uuid: 'none' })],
    ['snapshot', 'snapshot_name', () => app.put(`${at}/snapshots`, { snapshot_name: '../up' })],
    ['snapshot without a name', 'snapshot_name', () => app.put(`${at}/snapshots`, {})],
    ['rollback', 'snapshot_name', () => app.put(`${at}/snapshots/${'a'.repeat(65)}/rollback`)],
    ['stop', 'timeout', () => app.post(`${at}/stop`, { timeout: 100_000 })],
    ['image', 'manifest', () => app.post(`${at}/images`, { ...stored, manifest: {} })],
    ['image', 'incremental', () => app.post(`${at}/images`, { ...stored, manifest, incremental: true })],
    ['change of a network', 'original_network', () => app.post(`${vms}/nics/update`, { networks: [] })],
    ['start', 'update', () => app.post(`${at}/start`, { update: { set_internal_metadata: { a: 1 } } })],
  ];
  for (const [what, field, call] of wrong) {
    const { status, body } = await call();
    t.match({ status, body }, { status: 400, body: { code: 'InvalidParameters' } }, what);
    t.match(JSON.stringify(body), field, `${what} names ${field}`);
  }
  t.equal(await app.delete(`${at}/snapshots/${'a'.repeat(65)}`), 400);
  t.equal(agent.received.size, 0);
  t.same((await zone.database.query('select id from cnapi_tasks')).rows, []);
});
