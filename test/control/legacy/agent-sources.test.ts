/**
 * The addresses that servers sent heartbeats from, on a real database; tasks go to no other
 * addresses.
 */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { AgentSources } from '../../../lib/control/legacy/agent-sources.ts';
import { deleteOldSources, readSources, recordSources } from '../../../lib/control/legacy/source-store.ts';
import { Servers } from '../../../lib/control/servers/servers.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import type { Database, Queryable } from '../../../lib/platform/postgres/database.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';
import type { Task } from '../../../lib/protocol/api/tasks.ts';
import { freshZone } from '../../support/apps.ts';
import { startFakeLegacyAgent } from '../../support/fake-legacy-agent.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { matchLists } from '../../support/match-lists.ts';
import { migrationsOf } from '../../support/migrations-of.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { recordingLogger } from '../../support/recording-logger.ts';
import { until } from '../../support/until.ts';

const migrations = migrationsOf('moray', 'roster', 'legacy', 'servers', 'tasks', 'vms');

t.test('addresses are stored while another instance holds those that must go', async (t) => {
  const { database, open } = await freshDatabase(t, { migrations });
  const servers = new Servers({ database, clock: systemClock, log: silentLogger, datacenter: 'dc' });
  await servers.start();
  const serverUuid = randomUUID();
  await servers.recordSysinfo(serverUuid, { UUID: serverUuid });
  await database.query(
    `insert into cnapi_agent_sources (server_uuid, address, heard_at)
       select $1::uuid, '10.0.0.' || n, cnapi_now() - n * interval '1 minute' from generate_series(1, 9) as n`,
    [serverUuid],
  );
  const other = open();
  await database.transaction(async (connection) => {
    await connection.query(`select 1 from cnapi_agent_sources where address = '10.0.0.9' for update`);
    await recordSources(other, [{ serverUuid, address: '10.0.0.1' }]);
    t.equal((await readSources(other, serverUuid)).length, 9);
  });
  await recordSources(other, [{ serverUuid, address: '10.0.0.1' }]);
  t.equal((await readSources(other, serverUuid)).length, 8, 'it goes when it is free');
});

t.test('source addresses are stored when new, for existing servers, and a few of each', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const servers = new Servers({ database, clock: systemClock, log: silentLogger, datacenter: 'dc' });
  await servers.start();
  const newServer = async () => {
    const uuid = randomUUID();
    await servers.recordSysinfo(uuid, { UUID: uuid });
    return uuid;
  };
  const clock = new ManualClock();
  let statements = 0;
  const counting = {
    query: (...args: Parameters<Database['query']>) => {
      statements += 1;
      return database.query(...args);
    },
  } as Database;
  const sources = new AgentSources({ database: counting, clock, log: silentLogger });
  t.teardown(() => sources.stop());
  const [one, two] = [await newServer(), await newServer()];
  const of = async (uuid: string) => (await readSources(database, uuid)).sort();

  await sources.record(one, '10.0.0.1');
  t.same(await of(one), ['10.0.0.1'], 'a sysinfo counts at once');
  statements = 0;
  const unknown = randomUUID();
  for (const [uuid, address] of [
    [one, '10.0.0.1'],
    [two, 'fd00::2'],
    [unknown, '10.0.0.9'],
  ] as const)
    sources.heard(uuid, address);
  await clock.advance(2_000);
  await until(async () => (await of(two)).length === 1, 'a heartbeat to count within seconds');
  await sources.stop();
  t.equal(statements, 2);
  t.same(await of(unknown), []);
  await servers.recordSysinfo(unknown, { UUID: unknown });
  await sources.record(unknown, '10.0.0.9');
  t.same(await of(unknown), ['10.0.0.9'], 'a server that was created after its first heartbeat');

  const own = new AgentSources({ database: counting, clock, log: silentLogger });
  statements = 0;
  for (let n = 0; n < 20; n++) {
    await own.record(one, '10.0.0.1');
    own.heard(one, '10.0.0.1');
  }
  t.equal(statements, 2, 'a stored address is not stored again');
  for (let n = 0; n < 20; n++) await own.record(one, `10.1.0.${n}`);
  t.equal((await of(one)).length, 8);
  t.ok((await of(one)).includes('10.1.0.19'), 'the newest addresses are kept');

  await database.query(
    "update cnapi_agent_sources set heard_at = heard_at - interval '8 days' where server_uuid = $1",
    [two],
  );
  t.equal(await deleteOldSources(database, 7, 100), 1);
  t.same(await of(two), []);
});

t.test('an address that the database refuses does not keep the others from being stored', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const servers = new Servers({ database, clock: systemClock, log: silentLogger, datacenter: 'dc' });
  await servers.start();
  const uuids = [randomUUID(), randomUUID(), randomUUID()];
  for (const uuid of uuids) await servers.recordSysinfo(uuid, { UUID: uuid });
  const refusing: Queryable = {
    query: (text, parameters = [], ...rest) =>
      JSON.stringify(parameters).includes('10.0.0.1')
        ? Promise.reject(new Error('not this one'))
        : database.query(text, parameters, ...rest),
  };
  const logged: Record<string, unknown>[] = [];
  const clock = new ManualClock();
  const sources = new AgentSources({ database: refusing, clock, log: recordingLogger(logged) });
  t.teardown(() => sources.stop());
  for (const [n, uuid] of uuids.entries()) sources.heard(uuid, `10.0.0.${n}`);
  await clock.advance(2_000);
  const stored = async () => (await Promise.all(uuids.map((uuid) => readSources(database, uuid)))).flat();
  await until(async () => {
    await clock.advance(100);
    return (await stored()).length === 2;
  }, 'the others to be stored');
  t.same((await stored()).sort(), ['10.0.0.0', '10.0.0.2']);
  await until(async () => {
    await clock.advance(100);
    return logged.length > 0;
  }, 'the refusal to be logged');
  matchLists(t, logged, [{ server_uuid: uuids[1], address: '10.0.0.1', reason: 'not this one' }]);
});

t.test('heartbeats from other addresses do not evict an address that the sysinfo names', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const servers = new Servers({ database, clock: systemClock, log: silentLogger, datacenter: 'dc' });
  await servers.start();
  const nics = { net0: { ip4addr: '10.0.0.3', 'NIC Names': ['admin'] }, net1: 'not one' };
  const cases = [
    { address: '10.0.0.1', sysinfo: { 'CN Agent IP': '10.0.0.1', 'Admin IP': '10.0.0.2' } },
    { address: '10.0.0.2', sysinfo: { 'Admin IP': '10.0.0.2', 'Network Interfaces': 'none' } },
    { address: '10.0.0.3', sysinfo: { 'Network Interfaces': nics } },
  ];
  for (const { address, sysinfo } of cases) {
    const uuid = randomUUID();
    const sources = new AgentSources({ database, clock: systemClock, log: silentLogger });
    await servers.recordSysinfo(uuid, { UUID: uuid, ...sysinfo });
    await sources.record(uuid, address);
    for (let n = 0; n < 20; n++) await sources.record(uuid, `10.1.0.${n}`);
    const kept = await readSources(database, uuid);
    t.equal(kept.length, 8);
    t.ok(kept.includes(address), address);
    t.ok(kept.includes('10.1.0.19'), 'in addition to the latest sources');
  }
});

t.test('an evicted address counts again once a sysinfo comes from it', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const servers = new Servers({ database, clock: systemClock, log: silentLogger, datacenter: 'dc' });
  await servers.start();
  const [uuid, clock] = [randomUUID(), new ManualClock()];
  const sources = new AgentSources({ database, clock, log: silentLogger });
  await servers.recordSysinfo(uuid, { UUID: uuid });
  for (const address of ['10.0.0.1', ...Array.from({ length: 8 }, (_, n) => `10.1.0.${n}`)])
    await sources.record(uuid, address);
  t.notOk((await readSources(database, uuid)).includes('10.0.0.1'));
  await clock.advance(60_000);
  await sources.record(uuid, '10.0.0.1');
  t.ok((await readSources(database, uuid)).includes('10.0.0.1'));
});

t.test('a task goes only to an address that its agent posted from or to a configured network', async (t) => {
  const zone = await freshZone(t);
  const plain = await zone.startApp();
  const agent = await startFakeLegacyAgent(t);
  const uuid = agent.serverUuid;
  const post = (host: string) => {
    const place = { 'Admin IP': host, 'CN Agent Port': agent.port };
    return plain.post(`/servers/${uuid}/sysinfo`, { sysinfo: { UUID: uuid, Hostname: 'old', ...place } });
  };
  const ran = async () => {
    const { body } = await plain.post<{ id: string }>(`/servers/${uuid}/tasks`, { task: 'nop' });
    return (await plain.get<Task>(`/tasks/${body.id}/wait?timeout=60`)).body;
  };
  t.equal((await post('127.0.0.1')).status, 200);
  t.match(await ran(), { status: 'complete' });
  t.equal((await post('127.0.0.3')).status, 200, 'its sysinfo is still kept');
  const refused = { status: 'failure', history: [{ event: { error: { code: 'NoAgentAddress' } } }, {}] };
  t.match(await ran(), refused);
  t.match(await plain.get(`/servers/${uuid}/task-history`), { status: 500, body: { code: 'NoAgentAddress' } });
  t.equal(agent.received.length, 1);

  await post('127.0.0.1');
  await zone.database.query('delete from cnapi_agent_sources');
  const waiting = ran();
  const other = await zone.startApp();
  await other.post(`/servers/${uuid}/events/heartbeat`, {});
  await until(
    async () => (await readSources(zone.database, uuid)).length === 1,
    'a heartbeat at any instance to count',
  );
  t.match(await waiting, { status: 'complete' }, 'a task waits for the first heartbeat');
});
