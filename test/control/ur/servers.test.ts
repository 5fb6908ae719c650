/**
 * Servers that speak Ur, with a real broker, real instances on one database, and a Ur that runs
 * scripts.
 */
import { randomUUID } from 'node:crypto';
import { connect } from 'amqplib';
import t, { type Test } from 'tap';
import type { Config } from '../../../lib/control/config.ts';
import { checkBroker } from '../../../lib/control/doctor/broker.ts';
import type { CheckInput } from '../../../lib/control/doctor/finding.ts';
import { recordMessages } from '../../../lib/control/ur/ur-store.ts';
import { systemRandom } from '../../../lib/platform/random.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';
import type { Server } from '../../../lib/protocol/api/servers.ts';
import type { Task } from '../../../lib/protocol/api/tasks.ts';
import { freshZone } from '../../support/apps.ts';
import { matchLists } from '../../support/match-lists.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { noRabbitmq, startRabbitmq, type TestBroker } from '../../support/rabbitmq.ts';
import { until } from '../../support/until.ts';
import { TestUr } from '../../support/ur.ts';
import { brokerState, readMetric, rosterRowOf, untilUrReason } from './support.ts';

t.setTimeout(FILE_TIMEOUT_MS);

t.test('servers that speak Ur', { skip: noRabbitmq }, async (t) => {
  const broker = await startRabbitmq(t);
  const zone = await freshZone(t);
  const app = await zone.startApp({ amqpUrl: broker.url });
  await until(async () => (await brokerState(app)) === 'online');

  const running = async (t: Test): Promise<TestUr> => {
    const ur = await TestUr.start(t, broker.url, randomUUID());
    ur.say();
    await untilUrReason(zone, ur.uuid, 'ur-sysinfo');
    return ur;
  };
  const execute = (ur: TestUr, body: Record<string, unknown>) =>
    app.post<{ exitCode: number; stdout: string; message: string }>(`/servers/${ur.uuid}/execute`, body);

  await t.test('the doctor tries the broker', async (t) => {
    const examine = (amqpUrl: string) =>
      checkBroker({ config: { amqpUrl } as Config, clock: systemClock, random: systemRandom } as CheckInput);
    matchLists(t, await examine(broker.url), [{ part: 'amqp', level: 'ok' }]);
    const [wrong] = await examine(broker.url.replace('guest@', 'wrong@'));
    t.match(wrong, { level: 'warn', found: /ACCESS.REFUSED/, todo: /amqpUrl/ });
  });

  await t.test('a sysinfo registers a server, which is running until Ur falls silent', async (t) => {
    const ur = await running(t);
    const { body } = await app.get<Server>(`/servers/${ur.uuid}`);
    t.match(body, { status: 'running', setup: false, hostname: ur.sysinfo.Hostname, sysinfo: { UUID: ur.uuid } });
    ur.sysinfo['MiB of Memory'] = '2048';
    ur.say();
    await until(async () => (await app.get<Server>(`/servers/${ur.uuid}`)).body.ram === 2048, 'the second sysinfo');
    t.match(await rosterRowOf(zone, ur.uuid), { epoch: 1 }, 'the status did not change');
  });

  await t.test('a script runs, and its output is the answer', async (t) => {
    const ur = await running(t);
    const script = '#!/bin/sh\necho "$1 $GREETED"; echo oops >&2; exit "$2"\n';
    const asked = { script, env: { GREETED: 'world' } };
    t.match(await execute(ur, { ...asked, args: ['hello', '0'] }), { status: 200, body: 'hello world' });
    const failed = await execute(ur, { ...asked, args: ['hello', '3'], json: true });
    t.match(failed, { status: 200, body: { exitCode: 3, stdout: 'hello world\n', stderr: 'oops\n' } });
    t.match(await execute(ur, { ...asked, args: ['hello', '3'] }), {
      status: 500,
      body: { message: 'Error executing on remote system' },
    });
    t.equal(ur.orders.length, 3, 'each was sent once');
    const tasks = await zone.database.query('select 1 from cnapi_tasks where server_uuid = $1 and outcome = $2', [
      ur.uuid,
      'complete',
    ]);
    t.equal(tasks.rows.length, 3, 'each is a task with an end');
  });

  await t.test('a script that asks for a reboot has not failed, and the server is rebooting', async (t) => {
    const ur = await running(t);
    t.match(await execute(ur, { script: '#!/bin/sh\nexit 113\n', json: true }), { status: 200, body: { exitCode: 0 } });
    await until(() => ur.reboots === 1);
    const transition = async () => (await app.get<Server>(`/servers/${ur.uuid}`)).body.transitional_status;
    t.equal(await transition(), undefined, 'Ur does not say so');
    ur.instead = (key) => ur.reply(key, 113, '');
    t.match(await execute(ur, { script: '#!/bin/sh\nexit 113\n', json: true }), { status: 200, body: { exitCode: 0 } });
    t.equal(await transition(), 'rebooting', 'a Ur that does say so');
    ur.sysinfo['Boot Time'] = '1790000000';
    ur.say();
    await until(async () => (await transition()) === undefined, 'the end of the reboot');
  });

  await t.test('the sysinfo can be asked for', async (t) => {
    const ur = await running(t);
    ur.sysinfo['MiB of Memory'] = '4096';
    t.equal((await app.post(`/servers/${ur.uuid}/sysinfo-refresh`)).status, 200);
    t.equal((await app.get<Server>(`/servers/${ur.uuid}`)).body.ram, 4096);
  });

  await t.test('a Ur that starts is asked for its sysinfo', async (t) => {
    const ur = await TestUr.start(t, broker.url, randomUUID());
    ur.startup();
    await untilUrReason(zone, ur.uuid, 'ur-sysinfo');
    t.same(ur.orders, [{ type: 'file', file: '/usr/bin/sysinfo' }]);
  });

  await t.test('what needs an agent fails, and so does a script that no Ur receives', async (t) => {
    const ur = await running(t);
    const { body } = await app.post<{ id: string }>(`/servers/${ur.uuid}/tasks`, { task: 'nop' });
    const ended = await app.get<Task>(`/tasks/${body.id}/wait`);
    t.match(ended.body, { status: 'failure' });
    t.match(ended.body.history?.[0], { event: { error: { code: 'NeedsAgent' } } });
    await ur.stop();
    const unheard = await execute(ur, { script: '#!/bin/sh\n' });
    t.match(unheard, { status: 500, body: { message: /no Ur of this server listens/ } });
  });

  await t.test('a caller may wait for less long than the script takes', async (t) => {
    const ur = await running(t);
    const late = Promise.withResolvers<string>();
    ur.instead = late.resolve;
    t.match(await execute(ur, { script: '#!/bin/sh\n', timeout: 100 }), { status: 500, body: { message: /in time/ } });
    ur.reply(await late.promise, 0, 'late');
    ur.instead = (key) => ur.reply(key, 0, 'next');
    t.match(await execute(ur, { script: '#!/bin/sh\n' }), { body: 'next' }, 'the late reply is not taken for another');
  });

  await t.test('a script that Ur has not taken in time is not handed to it later', async (t) => {
    const ur = await running(t);
    await ur.stop();
    const connection = await connect(broker.url);
    t.teardown(() => connection.close());
    const channel = await connection.createChannel();
    const { queue } = await channel.assertQueue('', { exclusive: true });
    await channel.bindQueue(queue, 'amq.topic', `ur.execute.${ur.uuid}.*`);
    t.match(await execute(ur, { script: '#!/bin/sh\n', timeout: 300 }), { status: 500, body: { message: /in time/ } });
    await until(async () => (await channel.checkQueue(queue)).messageCount === 0, 'the end of the script in the queue');
  });

  await t.test('messages that cannot be used are dropped, and the next one is not', async (t) => {
    const ur = await TestUr.start(t, broker.url, randomUUID());
    const before = await readMetric(app, 'ur_messages_dropped_total');
    const key = `ur.sysinfo.${ur.uuid}`;
    ur.publish(key, Buffer.from('{"UUID":'));
    ur.publish(key, { UUID: randomUUID() });
    ur.publish(key, Buffer.alloc(1024 * 1024 + 1, ' '));
    ur.publish(key, Buffer.from(`{"UUID":"${ur.uuid}","x":${'['.repeat(5_000)}${']'.repeat(5_000)}}`));
    ur.publish('ur.sysinfo.default', { UUID: 'default' });
    ur.publish('ur.startup', [1]);
    await until(
      async () => (await readMetric(app, 'ur_messages_dropped_total')) === before + 6,
      'six dropped messages',
    );
    t.equal((await app.get(`/servers/${ur.uuid}`)).status, 404);
    ur.say();
    await untilUrReason(zone, ur.uuid, 'ur-sysinfo');
    t.equal(await unackedOf(broker), 0, 'nothing is delivered again');
  });

  await t.test('a server with an agent is not changed by a message', async (t) => {
    const ur = await TestUr.start(t, broker.url, randomUUID());
    await app.post(`/servers/${ur.uuid}/sysinfo`, { sysinfo: { ...ur.sysinfo, Setup: 'true', Hostname: 'own' } });
    const row = await untilUrReason(zone, ur.uuid, 'legacy-heartbeat');
    const ignored = await readMetric(app, 'ur_messages_ignored_total');
    ur.sysinfo['MiB of Memory'] = '1';
    ur.say();
    await until(async () => (await readMetric(app, 'ur_messages_ignored_total')) === ignored + 1, 'the message');
    t.match((await app.get<Server>(`/servers/${ur.uuid}`)).body, { setup: true, hostname: 'own', ram: undefined });
    t.same(await rosterRowOf(zone, ur.uuid), row);
  });

  await t.test('a server that had an agent is not taken over by a message, until it is removed', async (t) => {
    const { database } = zone;
    const ur = await TestUr.start(t, broker.url, randomUUID());
    const lost = "update cnapi_roster_authority set status = 'unknown', reason = $2, run = null where server_uuid = $1";
    for (const [reason, Setup] of [
      ['legacy-silent', 'true'],
      ['closed', 'false'],
    ] as const) {
      const sysinfo = { UUID: ur.uuid, Hostname: 'own', Setup, 'MiB of Memory': '512', 'Boot Parameters': {} };
      await app.post(`/servers/${ur.uuid}/sysinfo`, { sysinfo });
      // The creation of the server counts as its first heartbeat; another one would be recorded
      // seconds later, after the statement below, and undo it.
      if (reason === 'closed') await app.post(`/servers/${ur.uuid}/events/heartbeat`);
      await untilUrReason(zone, ur.uuid, 'legacy-heartbeat');
      await database.query(lost, [ur.uuid, reason]);
      const [before, row] = [await app.get<Server>(`/servers/${ur.uuid}`), await rosterRowOf(zone, ur.uuid)];
      const ignored = await readMetric(app, 'ur_messages_ignored_total');
      ur.sysinfo['Boot Parameters'] = { headnode: 'true' };
      ur.sysinfo['SDC Agents'] = [{ name: 'x' }];
      ur.say();
      await until(async () => (await readMetric(app, 'ur_messages_ignored_total')) === ignored + 1, 'the message');
      t.strictSame((await app.get<Server>(`/servers/${ur.uuid}`)).body, before.body, reason);
      t.same(await recordMessages(database, app.cnapiUuid, [ur.uuid]), [], 'nor by the statement alone');
      t.same(await rosterRowOf(zone, ur.uuid), row);
      t.match(await execute(ur, { script: '#!/bin/sh\n', env: { SECRET: 'x' } }), { status: 409 });
      t.same(ur.orders, [], 'the script did not go to the broker');
    }
    t.equal(await app.delete(`/servers/${ur.uuid}`), 200);
    ur.say();
    await untilUrReason(zone, ur.uuid, 'ur-sysinfo');
    t.match((await app.get<Server>(`/servers/${ur.uuid}`)).body, { status: 'running', headnode: true });
  });

  await t.test('a message does not say that a server is no longer set up', async (t) => {
    const ur = await running(t);
    await app.post(`/servers/${ur.uuid}`, { setup: true });
    const ignored = await readMetric(app, 'ur_messages_ignored_total');
    ur.say();
    await until(async () => (await readMetric(app, 'ur_messages_ignored_total')) === ignored + 1, 'the message');
    t.match((await app.get<Server>(`/servers/${ur.uuid}`)).body, { setup: true });
  });

  await t.test('a server that is set up is not running by Ur', async (t) => {
    const ur = await TestUr.start(t, broker.url, randomUUID());
    ur.sysinfo.Setup = 'true';
    const stored = await readMetric(app, 'ur_messages_stored_total');
    ur.say();
    await until(async () => (await readMetric(app, 'ur_messages_stored_total')) === stored + 1, 'the message');
    t.match((await app.get<Server>(`/servers/${ur.uuid}`)).body, { setup: true, status: 'unknown' });
  });

  await t.test('the heartbeats of a legacy agent take a server from Ur', async (t) => {
    const ur = await running(t);
    await app.post(`/servers/${ur.uuid}/events/heartbeat`);
    const row = await untilUrReason(zone, ur.uuid, 'legacy-heartbeat');
    t.match(row, { status: 'running', epoch: 2 });
  });

  await t.test('any instance finds that a Ur is silent, and a message undoes it', async (t) => {
    const ur = await running(t);
    const observer = await zone.startApp({ amqpUrl: broker.url, urSilenceMs: 300 });
    t.match(await untilUrReason(zone, ur.uuid, 'ur-silent'), { status: 'unknown', epoch: 1 });
    t.match(await execute(ur, { script: '#!/bin/sh\n' }), { status: 409 });
    await observer.stop();
    ur.say();
    t.match(await untilUrReason(zone, ur.uuid, 'ur-sysinfo'), { status: 'running', epoch: 2 });
  });
});

/** Messages of the shared queue that nobody has received yet. */
async function unackedOf(broker: TestBroker): Promise<number> {
  const connection = await connect(broker.url);
  const channel = await connection.createChannel();
  const { messageCount } = await channel.checkQueue('ur.cnapi');
  await connection.close();
  return messageCount;
}
