/**
 * Faults between Ur and an instance: the broker or an instance is killed, the broker is frozen or
 * its disk is full, or rows are locked.
 */
import { randomUUID } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import pg from 'pg';
import t, { type Test } from 'tap';
import type { Server } from '../../../lib/protocol/api/servers.ts';
import type { Task } from '../../../lib/protocol/api/tasks.ts';
import { ownProgram, Program } from '../../../tools/processes/program.ts';
import { freshZone, type TestApp, type TestZone } from '../../support/apps.ts';
import { freePort } from '../../support/fleet-harness.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { noRabbitmq, startRabbitmq } from '../../support/rabbitmq.ts';
import { until } from '../../support/until.ts';
import { TestUr } from '../../support/ur.ts';
import { brokerState, readMetric, rosterRowOf, untilUrReason } from './support.ts';

t.setTimeout(FILE_TIMEOUT_MS);

const SERVERS = 40;
const SCRIPT = { script: '#!/bin/sh\necho ok\n' };

t.test('faults between Ur and instances', { skip: noRabbitmq }, async (t) => {
  const broker = await startRabbitmq(t);
  const zone = await freshZone(t);
  const amqpUrl = broker.url;

  const messagesOf = async (serverUuid: string): Promise<number | undefined> => {
    const sql = 'select message from cnapi_ur_servers where server_uuid = $1';
    return (await zone.database.query<{ message: number }>(sql, [serverUuid])).rows[0]?.message;
  };

  await t.test('what an instance has received and not stored, another one stores when it is killed', async (t) => {
    const killed = await startProcess(t, zone, amqpUrl);
    const ur = await TestUr.start(t, amqpUrl, randomUUID());
    ur.say();
    await untilUrReason(zone, ur.uuid, 'ur-sysinfo');

    ur.instead = () => undefined;
    const asked = fetch(`${killed.url}/servers/${ur.uuid}/execute`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(SCRIPT),
    }).catch(() => undefined);
    await until(() => ur.orders.length === 1, 'the script');

    const holder = new pg.Client({ connectionString: zone.url });
    await holder.connect();
    await holder.query('begin');
    await holder.query('lock table cnapi_ur_servers');
    ur.say();
    const waiting = "from pg_locks where relation = 'cnapi_ur_servers'::regclass and not granted";
    const waits = async () => (await zone.database.query(`select 1 ${waiting}`)).rows.length > 0;
    await until(waits, 'the message to be stored');
    await killed.program.kill();
    // Otherwise its statement would be carried out when the lock is released.
    await zone.database.query(`select pg_terminate_backend(pid) ${waiting}`);
    await holder.end();
    await asked;
    t.equal(await messagesOf(ur.uuid), 1, 'it was not stored');

    const app = await zone.startApp({ amqpUrl });
    await until(async () => (await messagesOf(ur.uuid)) === 2, 'the message to be delivered again');
    const sql = 'select id from cnapi_tasks where server_uuid = $1';
    const [task] = (await zone.database.query<{ id: string }>(sql, [ur.uuid])).rows;
    const { body } = await app.get<Task>(`/tasks/${task?.id}/wait`);
    t.match(body, { status: 'failure' });
    t.match(body.history?.[0], { event: { error: { code: 'OutcomeUnknown', message: /is gone/ } } });
    t.equal(ur.orders.length, 1, 'the script was not sent again');
    await app.stop();
  });

  const uuids = Array.from({ length: SERVERS }, () => randomUUID());
  await t.test('two instances share what the servers say', async (t) => {
    const apps = [await zone.startApp({ amqpUrl }), await zone.startApp({ amqpUrl })];
    for (const app of apps) await until(async () => (await brokerState(app)) === 'online');
    const speaker = await TestUr.start(t, amqpUrl, randomUUID());
    for (const uuid of uuids) speaker.publish(`ur.sysinfo.${uuid}.1`, { UUID: uuid, Hostname: uuid, Setup: false });
    for (const uuid of uuids) await untilUrReason(zone, uuid, 'ur-sysinfo');
    const stored = await Promise.all(apps.map((app) => readMetric(app, 'ur_messages_stored_total')));
    t.ok(
      stored.every((some) => some > 0),
      `both stored some: ${stored.join(' and ')}`,
    );
    t.equal(Math.max(...(await Promise.all(uuids.map(async (uuid) => (await messagesOf(uuid)) ?? 0)))), 1);
    for (const app of apps) await app.stop();
  });

  await t.test('servers whose rows are locked delay no other, and none is found silent meanwhile', async (t) => {
    const [quiet = '', other = '', ...locked] = uuids;
    const holder = new pg.Client({ connectionString: zone.url });
    await holder.connect();
    await holder.query('begin');
    await holder.query('select 1 from cnapi_servers where uuid = any ($1) for update', [locked]);
    const speaker = await TestUr.start(t, amqpUrl, randomUUID());
    const say = (uuid: string, Hostname: string) =>
      speaker.publish(`ur.sysinfo.${uuid}.1`, { UUID: uuid, Hostname, Setup: false });
    for (const uuid of locked) for (const name of ['a', 'b', 'c', 'd']) say(uuid, name);
    say(other, 'other');

    const observer = await zone.startApp({ amqpUrl, urSilenceMs: 200 });
    await until(async () => (await readMetric(observer, 'ur_servers')) > 0, 'the first poll of the observer');
    await until(async () => (await messagesOf(other)) === 2, 'the message of a server whose row is not locked');
    await untilPolls(zone, observer);
    t.match(await rosterRowOf(zone, quiet), { status: 'running' }, 'what was said may still wait here');
    t.ok((await readMetric(observer, 'ur_messages_replaced_total')) > 0, 'only the newest message waits');

    await holder.query('rollback');
    await holder.end();
    const last = locked.at(-1) ?? '';
    await until(async () => (await messagesOf(last)) === 2, 'the message of a server whose row was locked');
    t.match((await observer.get<Server>(`/servers/${last}`)).body, { hostname: 'd' }, 'the newest');
    await untilUrReason(zone, quiet, 'ur-silent');
    await observer.stop();
  });

  await t.test('a broker that takes no messages is offline, and nobody is silent', async (t) => {
    const app = await zone.startApp({ amqpUrl });
    await until(async () => (await brokerState(app)) === 'online');
    const ur = await TestUr.start(t, amqpUrl, randomUUID());
    ur.say();
    await untilUrReason(zone, ur.uuid, 'ur-sysinfo');
    await broker.setAlarm(true);
    await until(async () => (await brokerState(app)) === 'offline', 'an instance that has sent no script learns of it');
    const observer = await zone.startApp({ amqpUrl, urSilenceMs: 200 });
    const connects = async () => (await readMetric(observer, 'ur_broker_connects_total')) > 0;
    await until(connects, 'the connection of an instance that starts meanwhile');
    await until(async () => (await readMetric(observer, 'ur_servers')) > 0, 'the first poll of the observer');
    await untilPolls(zone, observer);
    t.equal(await brokerState(observer), 'offline');
    t.match(await rosterRowOf(zone, ur.uuid), { status: 'running' });
    await observer.stop();
    t.match(await app.post(`/servers/${ur.uuid}/execute`, { ...SCRIPT, timeout: 100 }), {
      status: 500,
      body: { message: /the script was not sent/ },
    });

    await broker.setAlarm(false);
    await until(async () => (await brokerState(app)) === 'online');
    t.match(await app.post(`/servers/${ur.uuid}/execute`, SCRIPT), { status: 200, body: 'ok' });
    t.equal(ur.orders.length, 1, 'the script that was refused is not sent later');
    await app.stop();
  });

  await t.test('a frozen broker delays nothing but what needs it', async (t) => {
    const app = await zone.startApp({ amqpUrl });
    const ur = await TestUr.start(t, amqpUrl, randomUUID());
    ur.say();
    await untilUrReason(zone, ur.uuid, 'ur-sysinfo');
    await broker.freeze();
    const state = { isAnswered: false };
    const executed = app.post(`/servers/${ur.uuid}/execute`, SCRIPT).finally(() => {
      state.isAnswered = true;
    });
    t.equal((await app.get('/servers')).status, 200);
    const registered = randomUUID();
    const sysinfo = { UUID: registered, Hostname: 'h' };
    t.equal((await app.post(`/servers/${registered}/sysinfo`, { sysinfo })).status, 200);
    t.equal((await app.get(`/servers/${registered}`)).status, 200);
    t.equal(state.isAnswered, false, 'the script waits for the broker');
    t.match(await app.post(`/servers/${ur.uuid}/execute`, { ...SCRIPT, timeout: 100 }), {
      status: 500,
      body: { message: /the script was not sent/ },
    });
    t.equal(state.isAnswered, false, 'a caller that waits for a shorter time is answered earlier');
    await broker.thaw();
    t.match(await executed, { status: 200, body: 'ok' });
    t.equal(ur.orders.length, 1);
    await app.stop();
  });

  await t.test('a broker that is killed and starts again', async (t) => {
    const app = await zone.startApp({ amqpUrl });
    const ur = await TestUr.start(t, amqpUrl, randomUUID());
    ur.say();
    await untilUrReason(zone, ur.uuid, 'ur-sysinfo');
    await broker.kill();
    await until(async () => (await brokerState(app)) === 'offline');
    t.match(await app.post(`/servers/${ur.uuid}/execute`, SCRIPT), {
      status: 500,
      body: { message: /broker cannot be used; the script was not sent/ },
    });

    const observer = await zone.startApp({ amqpUrl, urSilenceMs: 200 });
    await until(async () => (await readMetric(observer, 'ur_servers')) > 0, 'the first poll of the observer');
    await untilPolls(zone, observer);
    t.match(await rosterRowOf(zone, ur.uuid), { status: 'running' }, 'an instance that cannot hear it decides nothing');

    await broker.restart();
    await untilUrReason(zone, ur.uuid, 'ur-silent');
    t.equal(await readMetric(observer, 'ur_silent_servers_total').then((silent) => silent > 0), true);
    await observer.stop();

    const again = await TestUr.start(t, amqpUrl, ur.uuid);
    await until(async () => (await brokerState(app)) === 'online');
    again.say();
    await untilUrReason(zone, ur.uuid, 'ur-sysinfo');
    t.match(await app.post(`/servers/${ur.uuid}/execute`, SCRIPT), { status: 200, body: 'ok' });
  });
});

/** Waits until the instance has had time for some polls while it was healthy. */
async function untilPolls({ database }: TestZone, { cnapiUuid }: TestApp): Promise<void> {
  const sql = 'select beat from cnapi_instances where cnapi_uuid = $1';
  const beat = async () => (await database.query<{ beat: number }>(sql, [cnapiUuid])).rows[0]?.beat ?? 0;
  const from = await beat();
  await until(async () => (await beat()) >= from + 4, 'some polls of the observer');
}

/** An instance as a process of its own, which can be killed. */
async function startProcess(t: Test, zone: TestZone, amqpUrl: string): Promise<{ url: string; program: Program }> {
  const folder = await mkdtemp(path.join(tmpdir(), 'cnapi-ur-instance-'));
  const port = await freePort();
  const file = path.join(folder, 'config.json');
  await writeFile(
    file,
    JSON.stringify({ cnapiUuid: randomUUID(), port, databaseUrl: zone.url, databasePoolSize: 4, amqpUrl }),
  );
  const command = ownProgram('server.ts', ['--config', file]);
  const program = new Program({ name: 'instance', command, logFile: path.join(folder, 'instance.log') });
  t.teardown(async () => {
    await program.kill();
    await rm(folder, { recursive: true, force: true });
  });
  program.start();
  const url = `http://127.0.0.1:${port}`;
  await until(async () => {
    const answer = await fetch(`${url}/ping`).catch(() => undefined);
    return ((await answer?.json()) as { services: { amqp: string } } | undefined)?.services.amqp === 'online';
  }, 'the instance to listen');
  return { url, program };
}
