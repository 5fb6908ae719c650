/**
 * The VM methods of the client that Triton's own programs use, against an instance with two
 * servers: one has an agent of this project, the other one a legacy agent of Triton.
 */
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { connect } from 'node:net';
import t from 'tap';
import { VmAgent } from '../control/vms/vm-agent.ts';
import { freshZone } from '../support/apps.ts';
import { startLegacyServer } from '../support/legacy-server.ts';
import { matchLists } from '../support/match-lists.ts';
import { FILE_TIMEOUT_MS } from '../support/patience.ts';
import { until } from '../support/until.ts';
import { OldClient } from './old-client.ts';

t.setTimeout(FILE_TIMEOUT_MS);

const UNKNOWN_UUID = randomUUID();
const ADDRESS = { host: '10.0.0.5', port: 49_152 };

interface Task {
  id: string;
}

t.test('the existing client manages VMs', async (t) => {
  const client = await OldClient.start(t);
  const app = await (await freshZone(t)).startApp();
  const agent = await VmAgent.start(app);
  t.teardown(() => agent.agent.close());
  const legacy = await startLegacyServer(t, app);
  const call = <Result>(method: string, ...args: unknown[]) => client.call<Result>(app.url, method, ...args);
  const linkedServer = agent.machine.serverUuid;
  const uuid = randomUUID();
  const image_uuid = randomUUID();
  const listed = async () => (await app.get<{ uuid: string; state: string }[]>(`/servers/${linkedServer}/vms`)).body;

  t.test('createVm, stopVm, startVm, rebootVm and deleteVm are tasks that pollTask follows', async (t) => {
    const changes: [method: string, task: string, stateAfter: string | undefined][] = [
      ['createVm', 'machine_create', 'running'],
      ['stopVm', 'machine_shutdown', 'stopped'],
      ['startVm', 'machine_boot', 'running'],
      ['rebootVm', 'machine_reboot', 'running'],
      ['deleteVm', 'machine_destroy', undefined],
    ];
    for (const [method, task, state] of changes) {
      const vm = { uuid, state, last_modified: new Date().toISOString() };
      agent.answer = () => ({ result: state === undefined ? {} : { vm } });
      const given = method === 'createVm' ? { uuid, image_uuid, brand: 'oci', alias: 'web' } : uuid;
      const { error, status, result } = await call<Task>(method, linkedServer, given);
      t.match({ error, status }, { error: null, status: 200 }, method);
      matchLists(t, await call('pollTask', result.id, {}), {
        error: null,
        result: { id: result.id, status: 'complete', task },
      });
      t.match(agent.received.get(result.id), { name: task, params: { uuid, server_uuid: linkedServer } });
      matchLists(t, await listed(), state === undefined ? [] : [{ uuid, state }]);
    }
  });

  t.test('the headers that a method is given arrive', async (t) => {
    const headers = { 'x-request-id': randomUUID() };
    const { result } = await call<Task>('stopVm', linkedServer, uuid, { headers });
    t.match(await call('pollTask', result.id, {}), { result: { req_id: headers['x-request-id'] } });
  });

  t.test('getVm is the VM as its agent knows it, and one that is not there is an error', async (t) => {
    agent.answer = () => ({ result: { uuid, state: 'running', customer_metadata: { key: 'value' } } });
    t.match(await call('getVm', linkedServer, uuid), {
      error: null,
      status: 200,
      result: { uuid, state: 'running', customer_metadata: { key: 'value' } },
    });
    agent.answer = () => ({ error: { code: 'VmNotFound', message: 'no such VM' } });
    t.match(await call('getVm', linkedServer, uuid), {
      error: { statusCode: 404, restCode: 'ResourceNotFound', message: `VM ${uuid} not found` },
    });
    legacy.answers.set('machine_load', [500, { error: 'not here', details: { restCode: 'VmNotFound' } }]);
    t.match(await call('getVm', legacy.serverUuid, uuid), {
      error: { statusCode: 404, restCode: 'ResourceNotFound', message: `VM ${uuid} not found` },
    });
  });

  t.test('a refusal is an error with its code', async (t) => {
    t.match(await call('createVm', UNKNOWN_UUID, { uuid, image_uuid }), {
      error: { statusCode: 404, restCode: 'ResourceNotFound', message: `Server ${UNKNOWN_UUID} not found` },
    });
    t.match(await call('createVm', linkedServer, { uuid }), {
      error: { statusCode: 400, restCode: 'InvalidParameters' },
    });
    t.match(await call('deleteVm', linkedServer, 'nonsense'), {
      error: { statusCode: 409, restCode: 'InvalidArgument', message: 'Invalid vm_uuid' },
    });
    agent.answer = () => ({ error: { code: 'VmNotRunning', message: 'it is stopped' } });
    const { result } = await call<Task>('rebootVm', linkedServer, uuid);
    t.match(await call('pollTask', result.id, {}), {
      error: { message: 'task failed' },
      result: { status: 'failure' },
    });
  });

  t.test('the methods of docker work on the server of a legacy agent', async (t) => {
    const questions: [method: string, task: string, params: object, answer: object][] = [
      ['dockerExec', 'docker_exec', { command: { Cmd: ['true'] } }, ADDRESS],
      ['dockerCopy', 'docker_copy', { path: '/etc/motd', mode: 'stat' }, { ...ADDRESS, containerPathStat: '{}' }],
      ['dockerStats', 'docker_stats', { payload: { stream: true } }, ADDRESS],
      ['dockerBuild', 'docker_build', { payload: { dockerfile: 'FROM x' } }, ADDRESS],
    ];
    for (const [method, task, params, answer] of questions) {
      legacy.answers.set(task, [200, answer]);
      t.match(await call(method, legacy.serverUuid, uuid, params), { error: null, status: 200, result: answer });
      t.match(legacy.received.at(-1), { task, params: { uuid, server_uuid: legacy.serverUuid, ...params } });
    }
    legacy.answers.set('docker_copy', [500, { error: '/no is missing', details: { restCode: 'FileNotFound' } }]);
    t.match(await call('dockerCopy', legacy.serverUuid, uuid, { path: '/no' }), {
      error: { statusCode: 404, restCode: 'FileNotFound', message: '/no is missing' },
    });
    t.match(await call('dockerBuild', linkedServer, uuid, { payload: { dockerfile: 'FROM x' } }), {
      error: { statusCode: 501, restCode: 'NotSupported' },
    });
  });

  for (const [method, params] of [
    ['dockerExec', { command: { Cmd: ['true'] } }],
    ['dockerStats', { payload: { stream: true } }],
  ] as const)
    t.test(`${method} answers a host and a port at which the client can connect`, async (t) => {
      agent.answer = ({ name }) => (name === 'machine_load' ? { result: { uuid, state: 'running' } } : undefined);
      const { error, result } = await call<typeof ADDRESS>(method, linkedServer, uuid, params);
      t.equal(error, null);
      const socket = connect(result);
      t.teardown(() => socket.destroy());
      await once(socket, 'connect');
    });

  t.test('createVm on the server of a legacy agent passes on what that agent needs', async (t) => {
    legacy.answers.set('machine_create', [200, { vm: { uuid, state: 'running' } }]);
    const payload = { uuid, image_uuid, brand: 'joyent', ram: 128, image: { files: [{ compression: 'gzip' }] } };
    const { error, result } = await call<Task>('createVm', legacy.serverUuid, payload);
    t.equal(error, null);
    await until(() => legacy.received.find(({ task }) => task === 'machine_create'), 'the task');
    t.match(legacy.received.at(-1)?.params, { ...payload, server_uuid: legacy.serverUuid });
    t.match(await call('pollTask', result.id, {}), { error: null, result: { status: 'complete' } });
  });

  t.test('the client printed no error and no warning of Node', async (t) => {
    t.same(client.complaints, []);
  });
});
