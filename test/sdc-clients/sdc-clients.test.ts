/**
 * The client that Triton's own programs use (the package `sdc-clients`, unmodified) against two
 * instances and a real agent. Either instance answers each call as Triton's CNAPI does.
 */
import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import t, { type Test } from 'tap';
import { ownProgram, Program } from '../../tools/processes/program.ts';
import { freshZone, type TestApp, type TestZone } from '../support/apps.ts';
import { matchLists } from '../support/match-lists.ts';
import { FILE_TIMEOUT_MS } from '../support/patience.ts';
import { until } from '../support/until.ts';
import { OldClient } from './old-client.ts';

t.setTimeout(FILE_TIMEOUT_MS);

const SERVER = randomUUID();
const UNKNOWN_UUID = randomUUID();

interface Task {
  id: string;
  status: string;
  task: string;
}

interface Created {
  uuid: string;
  queue: { uuid: string; status: string }[];
}

t.test('the existing client works unmodified against two instances', async (t) => {
  const client = await OldClient.start(t);
  const zone = await freshZone(t);
  const [one, other] = [await zone.startApp(), await zone.startApp()];
  await startAgent(t, one);
  const call = <Result>(method: string, ...args: unknown[]) => client.call<Result>(one.url, method, ...args);
  const callOther = <Result>(method: string, ...args: unknown[]) => client.call<Result>(other.url, method, ...args);

  t.test('ping reports every service online', async (t) => {
    t.match(await call('ping'), {
      error: null,
      status: 200,
      result: { ready: true, services: { workflow: 'online', moray: 'online', amqp: 'online' } },
    });
  });

  t.test('capacity says how much room servers have', async (t) => {
    type Room = { capacities: Record<string, object>; errors: object };
    const { error, result } = await until(async () => {
      const answer = await call<Room>('capacity', null);
      return SERVER in (answer.result?.capacities ?? {}) ? answer : undefined;
    }, 'the agent to report its disk');
    t.equal(error, null);
    t.match(result.capacities[SERVER], { cpu: Number, ram: Number, disk: Number });
    t.same((await callOther<Room>('capacity', [UNKNOWN_UUID])).result, { capacities: {}, errors: {} });
    t.match(await call('capacity', ['x']), { error: { statusCode: 500, restCode: 'InvalidParameters' } });
  });

  t.test('getServer and updateServer work, and a refusal is an error with its code', async (t) => {
    t.match(await call('getServer', SERVER), { error: null, result: { uuid: SERVER, status: 'running' } });
    const updated = await callOther('updateServer', SERVER, { comments: 'by the old client' });
    matchLists(t, updated, { error: null, status: 204, result: {} });
    t.match(await call('getServer', SERVER), { result: { comments: 'by the old client' } });
    t.match(await call('getServer', UNKNOWN_UUID), {
      error: { statusCode: 404, restCode: 'ResourceNotFound', message: `Server ${UNKNOWN_UUID} not found` },
    });
    t.match(await call('updateServer', SERVER, { hostname: 'not so' }), {
      error: { statusCode: 409, restCode: 'InvalidArgument' },
    });
  });

  t.test('listPlatforms, getBootParams and setBootParams work', async (t) => {
    await one.post('/boot_platforms', { name: '20200101T000000Z' });
    await one.post('/boot_platforms', { name: '20210101T000000Z' });
    const platforms = { '20200101T000000Z': {}, '20210101T000000Z': { latest: true } };
    t.match(await call('listPlatforms'), { error: null, status: 200 });
    t.strictSame((await callOther('listPlatforms')).result, platforms);
    t.match((await call('listPlatforms', { os: true })).result, {
      '20210101T000000Z': { latest: true, os: 'smartos' },
    });
    const change = { platform: '20210101T000000Z', kernel_args: { rabbitmq_test: 'x' } };
    t.match(await call('setBootParams', SERVER, change), { error: null, status: 204 });
    t.match(await callOther('getBootParams', SERVER), {
      error: null,
      status: 200,
      result: { ...change, kernel_args: { rabbitmq_test: 'x', hostname: os.hostname() }, default_console: 'serial' },
    });
    t.match(await call('setBootParams', SERVER, { platform: 'nope' }), {
      error: { statusCode: 500, restCode: 'InternalError', message: "Platform 'nope' does not exist" },
    });
    t.match(await call('getBootParams', UNKNOWN_UUID), { error: { statusCode: 404 } });
  });

  t.test('listServers reads all pages', async (t) => {
    await addServers(zone, 1_099);
    const { error, result } = await call<{ uuid: string }[]>('listServers', { extras: 'status' });
    t.equal(error, null);
    t.equal(new Set(result.map(({ uuid }) => uuid)).size, 1_100);
    t.equal(result.length, 1_100, 'no server twice');
    t.match(
      result.find(({ uuid }) => uuid === SERVER),
      { status: 'running' },
    );
    const page = await callOther<object[]>('listServers', { limit: 7, offset: 1_095 });
    t.equal(page.result.length, 5, 'an explicit page is one request');
  });

  t.test('commandExecute runs a script on the server', async (t) => {
    t.match(
      await callOther('commandExecute', SERVER, '#!/bin/sh\necho "  $1 $WHO  "', {
        args: ['hello'],
        env: { WHO: 'you' },
      }),
      {
        error: null,
        result: 'hello you',
      },
    );
    t.match(await call('commandExecute', SERVER, '#!/bin/sh\necho oh >&2; exit 3', { json: true }), {
      error: null,
      result: { exitCode: 3, stderr: 'oh\n', stdout: '' },
    });
    t.match(await call('commandExecute', SERVER, 'exit 1'), {
      error: { statusCode: 500, restCode: 'InternalError', message: 'Error executing on remote system' },
    });
  });

  t.test('ensureImage gives a task, also with the uuid alone', async (t) => {
    const uuid = randomUUID();
    for (const params of [uuid, { image_uuid: uuid, zfs_storage_pool_name: 'zones', imgapiPeers: [] }]) {
      const ensured = await call<{ id: string }>('ensureImage', SERVER, params);
      t.match(ensured, { error: null, status: 200, result: { id: String } });
      // This agent does not have the image, and no source is named.
      t.match(await callOther('waitTask', ensured.result?.id, { timeout: 60 }), {
        error: null,
        result: { task: 'image_ensure_present', status: 'failure' },
      });
    }
    t.match(await call('ensureImage', SERVER, { image_uuid: 5 }), {
      error: { statusCode: 500, restCode: 'InvalidParameters' },
    });
  });

  t.test('getTask, waitTask and pollTask work on either instance', async (t) => {
    const { id } = await nop(one, { sleep: 5 });
    t.match(await call('getTask', id), { error: null, result: { id, status: 'active', task: 'nop' } });
    const [waited, polled, early] = await Promise.all([
      callOther<Task>('waitTask', id, { timeout: 60 }),
      callOther<Task>('pollTask', id, {}),
      call<Task>('waitTask', (await nop(other, { sleep: 30 })).id, { timeout: 1 }),
    ]);
    t.match(waited, { error: null, result: { id, status: 'complete' } });
    t.match(polled, { error: null, result: { id, status: 'complete' } });
    t.match(early, { error: null, status: 200, result: { status: 'active' } }, 'after the timeout');
    const failing = await nop(one, { error: 'as asked' });
    t.match(await call('pollTask', failing.id, {}), {
      error: { message: 'task failed' },
      result: { status: 'failure' },
    });
    t.match(await call('getTask', UNKNOWN_UUID), { error: { statusCode: 404, message: 'no such task found' } });
  });

  t.test('tickets can be created, read, waited for and released on either instance', async (t) => {
    const ticket = { scope: 'vm', id: randomUUID(), action: 'provision', expires_at: '3000' };
    const first = await call<Created>('waitlistTicketCreate', SERVER, ticket);
    matchLists(t, first, { error: null, status: 202, result: { queue: [{ ...ticket, status: 'active' }] } });
    const second = await callOther<Created>('waitlistTicketCreate', SERVER, ticket);
    const { uuid } = second.result;
    matchLists(t, second.result.queue, [{ uuid: first.result.uuid }, { uuid, status: 'queued' }]);
    matchLists(t, await call('waitlistTicketWait', first.result.uuid), { error: null, status: 204, result: {} });
    const wait = call('waitlistTicketWait', uuid);
    t.match(await callOther('waitlistTicketRelease', first.result.uuid), { error: null, status: 204 });
    t.match(await wait, { error: null, status: 204 });
    matchLists(t, await callOther('waitlistTicketGet', uuid), {
      error: null,
      result: { uuid, status: 'active', extra: {} },
    });
    t.match(await call('waitlistTicketRelease', uuid), { error: null });
    t.match(await call('waitlistTicketWait', uuid), { error: { statusCode: 409, restCode: 'TicketFinished' } });
    t.match(await call('waitlistTicketGet', UNKNOWN_UUID), {
      error: { statusCode: 404, restCode: 'ResourceNotFound' },
    });
  });

  t.test('a ticket that expires during a wait is an error with the expected text', async (t) => {
    const add = (expires_at: string) =>
      call<Created>('waitlistTicketCreate', 'default', { scope: 'test', id: 'expires', expires_at });
    await add('3000');
    const { uuid } = (await add(new Date(Date.now() + 5_000).toISOString())).result;
    t.match(await callOther('waitlistTicketWait', uuid), {
      error: { statusCode: 500, restCode: 'InternalError', message: 'ticket has expired' },
    });
    t.match(await call('waitlistTicketWait', uuid), { error: { message: `ticket ${uuid} is expired` } });
  });

  t.test('a name and password given to the client neither help nor hinder', async (t) => {
    const guarded = await zone.startApp({ access: 'tokens', trustedNetworks: { '127.0.0.0/8': ['operator'] } });
    const withPassword = guarded.url.replace('http://', 'http://admin:secret@');
    for (let time = 0; time < 20; time++)
      t.match(await client.call(withPassword, 'getServer', SERVER), { error: null, result: { uuid: SERVER } });
    t.match(await client.call(withPassword, 'updateServer', SERVER, { next_reboot: '', transitional_status: '' }), {
      error: null,
      status: 204,
    });
    const outside = await zone.startApp({ access: 'tokens', trustedNetworks: { '192.0.2.0/24': ['operator'] } });
    t.match(await client.call(outside.url.replace('http://', 'http://admin:secret@'), 'getServer', SERVER), {
      error: { statusCode: 401, restCode: 'Unauthorized' },
    });
  });

  t.test('a wait on a draining instance is an error to be retried, never an active task', async (t) => {
    const leaving = await zone.startApp({ drainAgentsMs: 1_000, drainWaitsMs: 1_000 });
    const { id } = await nop(one, { sleep: 20 });
    const wait = client.call<Task>(leaving.url, 'waitTask', id, { timeout: 60 });
    await until(async () => /^cnapi_tasks_waits 1$/m.test(await metricsOf(leaving)), 'the instance to hold the wait');
    leaving.app.drain('the test');
    t.match(await wait, { error: { statusCode: 503, restCode: 'InstanceDraining' } });
    t.match(await callOther<Task>('waitTask', id, { timeout: 60 }), {
      error: null,
      result: { id, status: 'complete' },
    });
  });

  t.test('the client printed no error and no warning of Node', async (t) => {
    t.same(client.complaints, []);
  });
});

/** Starts a real agent of SERVER. Resolves when the server is `running`. */
async function startAgent(t: Test, { url, get }: TestApp): Promise<void> {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'cnapi-old-client-'));
  const args = ['--url', url, '--data', path.join(folder, 'data'), '--uuid', SERVER, '--containers'];
  const logFile = path.join(folder, 'agent.log');
  const agent = new Program({ name: 'agent', command: ownProgram('lib/agent/main.ts', args), logFile });
  t.teardown(async () => {
    await agent.kill();
    rmSync(folder, { recursive: true, force: true });
  });
  agent.start();
  const isRunning = async () => (await get<{ status?: string }>(`/servers/${SERVER}`)).body.status === 'running';
  await until(isRunning, 'its agent to have a session');
}

async function addServers({ database }: TestZone, count: number): Promise<void> {
  await database.query(
    `insert into cnapi_servers (_key, _value, _etag, _mtime)
       select uuid, jsonb_build_object('uuid', uuid, 'hostname', uuid), 'e', now()
         from (select gen_random_uuid()::text as uuid from generate_series(1, $1::int)) as new`,
    [count],
  );
}

async function metricsOf({ url }: TestApp): Promise<string> {
  return (await fetch(`${url}/metrics`)).text();
}

/** The client has no such method, but its users use `nop` in tests. */
async function nop({ post }: TestApp, params: object): Promise<{ id: string }> {
  return (await post<{ id: string }>(`/servers/${SERVER}/nop`, params)).body;
}
