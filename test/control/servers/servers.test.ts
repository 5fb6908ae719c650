import t from 'tap';
import { ServerNotFoundError, Servers, SysinfoMismatchError } from '../../../lib/control/servers/servers.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { EtagConflictError } from '../../../lib/platform/moray/moray-errors.ts';
import type { Database } from '../../../lib/platform/postgres/database.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';
import { matchLists } from '../../support/match-lists.ts';
import { migrationsOf } from '../../support/migrations-of.ts';
import { freshPglite } from '../../support/pglite.ts';
import { freshDatabase } from '../../support/postgres.ts';

const UUID = '564d5b45-3a8c-4c1f-9d0a-0123456789ab';
const OTHER = '564d5b45-3a8c-4c1f-9d0a-0123456789ac';
const VM = '564d5b45-3a8c-4c1f-9d0a-0123456789ad';
const FOREIGN_VM = '564d5b45-3a8c-4c1f-9d0a-0123456789ae';
const migrations = migrationsOf('moray', 'roster', 'legacy', 'servers', 'tasks', 'vms');
const everything = {
  filter: {},
  partSelection: { agents: true, report: true, sysinfo: true, lastHeartbeat: true },
  part: { limit: 10, offset: 0 },
};

async function open(database: Database): Promise<Servers> {
  const servers = new Servers({ database, clock: systemClock, log: silentLogger, datacenter: 'dc' });
  await servers.start();
  return servers;
}

const databases: [string, (t: Tap) => Promise<Database>][] = [
  ['Postgres', async (t) => (await freshDatabase(t, { migrations })).database],
  ['PGlite', (t) => freshPglite(t, { migrations })],
];
type Tap = { teardown(work: () => unknown): void };

for (const [name, fresh] of databases) {
  t.test(`servers are created, listed, updated and removed on ${name}`, async (t) => {
    const database = await fresh(t);
    const servers = await open(database);
    t.teardown(() => servers.stop());
    await open(database);

    await t.rejects(servers.recordSysinfo(UUID, { UUID: OTHER }), SysinfoMismatchError);
    t.same((await servers.list(everything)).servers, []);
    t.equal(await servers.recordReport(UUID, {}), false, 'a report does not create a server');
    t.equal(await servers.sysinfoDigest(UUID), undefined);

    await servers.recordSysinfo(UUID, { UUID: UUID.toUpperCase(), Hostname: 'a' }, 'digest-1');
    t.equal(await servers.sysinfoDigest(UUID), 'digest-1');
    servers.queueReport({ serverUuid: OTHER, epoch: 1 }, { vms: { [FOREIGN_VM]: { uuid: FOREIGN_VM } } }, 100);
    t.equal(await servers.recordReport(UUID, { vms: { [VM]: { uuid: VM } } }), true);
    matchLists(t, (await servers.list(everything)).servers, [
      { uuid: UUID, hostname: 'a', status: 'unknown', vms: { [VM]: { uuid: VM } }, sysinfo: { Hostname: 'a' } },
    ]);
    t.match(await servers.get(UUID), { isRunning: false, server: { uuid: UUID } });
    t.same((await servers.list({ ...everything, filter: { hostname: 'b' } })).servers, []);
    t.equal(
      (await servers.list({ ...everything, filter: { datacenter: 'dc', setup: false, uuids: [UUID, OTHER] } })).servers
        .length,
      1,
    );

    await servers.update(UUID, { comments: 'x' }, 0);
    t.match(await servers.get(UUID), { server: { comments: 'x' } });
    await t.rejects(servers.update(OTHER, {}, 0), ServerNotFoundError);

    t.same(await servers.remove(UUID, OTHER), { previousRun: null, epoch: null });
    t.equal(await servers.get(UUID), undefined);
    t.equal(await servers.sysinfoDigest(UUID), undefined);
    await t.rejects(servers.remove(UUID, OTHER), ServerNotFoundError);
    t.match(await servers.get('default'), { server: { uuid: 'default', serial: 'ttyb' } });
  });
}

t.test('an update that changes nothing is not written', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const servers = await open(database);
  await servers.recordSysinfo(UUID, { UUID, Hostname: 'a' });
  const etag = async () =>
    (await database.query<{ _etag: string }>('select _etag from cnapi_servers where _key = $1', [UUID])).rows[0]?._etag;
  const before = await etag();
  await servers.recordSysinfo(UUID, { UUID, Hostname: 'a', 'CPU Total Cores': 8 });
  await servers.update(UUID, { comments: '' }, 0);
  t.equal(await etag(), before);
  await servers.update(UUID, { comments: 'x' }, 0);
  t.not(await etag(), before);
});

t.test('concurrent writers of one server lose nothing; without retries one gets a conflict', async (t) => {
  const { database, open: openPool } = await freshDatabase(t, { migrations });
  const [one, other] = [await open(database), await open(openPool())];
  await Promise.all(
    Array.from({ length: 6 }, (_, n) => [one, other][n % 2]?.recordSysinfo(UUID, { UUID, 'MiB of Memory': n })),
  );
  t.equal((await one.list(everything)).servers.length, 1);

  const results = await Promise.allSettled(
    Array.from({ length: 20 }, (_, n) => [one, other][n % 2]?.update(UUID, { comments: `${n}` }, 0)),
  );
  const failures = results.flatMap((result) => (result.status === 'rejected' ? [result.reason] : []));
  t.ok(failures.length < 20);
  t.ok(failures.every((failure) => failure instanceof EtagConflictError));
});

t.test('a sysinfo is admitted again when another write comes between', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const servers = await open(database);
  await servers.recordSysinfo(UUID, { UUID, Setup: 'false' });
  const seen: unknown[] = [];
  const late = servers.recordSysinfo(UUID, { UUID, Setup: 'false', 'MiB of Memory': 1 }, 'late', async (before) => {
    seen.push(before?.setup);
    if (before?.setup) throw new Error('it is set up');
    await servers.recordSysinfo(UUID, { UUID, Setup: 'true' });
  });
  await t.rejects(late, { message: 'it is set up' });
  t.same(seen, [false, true]);
  t.match((await servers.get(UUID))?.server, { setup: true, ram: undefined });
});

t.test('a sysinfo left without its server does not stop the agent from sending it again', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const servers = await open(database);
  await servers.recordSysinfo(UUID, { UUID }, 'digest-1');
  await database.query('delete from cnapi_servers where _key = $1', [UUID]);
  t.equal(await servers.sysinfoDigest(UUID), undefined);
});

t.test('servers that arrive at once share statements, and one that fails does not affect others', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const asked = new Map<string, number>();
  const counted: Database = {
    query: (text, values, options = {}) => {
      const what = options.name ?? text;
      asked.set(what, (asked.get(what) ?? 0) + 1);
      return database.query(text, values, options);
    },
    transaction: (...args) => database.transaction(...args),
    stop: async () => {},
  };
  const servers = await open(counted);
  t.teardown(() => servers.stop());
  const uuids = Array.from({ length: 40 }, (_, each) => `${UUID.slice(0, -2)}${String(each + 10)}`);
  asked.clear();
  const kept = await Promise.allSettled([
    ...uuids.map((uuid) => servers.recordSysinfo(uuid, { UUID: uuid, Hostname: uuid }, `digest of ${uuid}`)),
    servers.recordSysinfo(OTHER, { UUID: OTHER, Hostname: 'b', bad: '\0' }, 'bad'),
  ]);
  t.same(
    kept.map(({ status }) => status),
    [...uuids.map(() => 'fulfilled'), 'rejected'],
  );
  const arrival = [...asked.values()].reduce((sum, times) => sum + times, 0);
  for (const uuid of uuids) t.equal(await servers.sysinfoDigest(uuid), `digest of ${uuid}`);
  t.equal((await servers.list({ ...everything, part: { limit: 100, offset: 0 } })).servers.length, 41);
  // Each server alone would need three. The one that fails costs some more until it is found.
  t.ok(arrival <= 41, `${arrival} statements for 41 servers`);
});

t.test('callers that ask for the defaults at the same time do not wait for each other', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  let reads = 0;
  const bothRead = Promise.withResolvers<void>();
  const counting: Database = {
    transaction: (work, options) => database.transaction(work, options),
    stop: () => database.stop(),
    async query(text, values, options) {
      const isRead = text.includes('where _key = any');
      if (isRead && ++reads === 2) bothRead.resolve();
      if (isRead) await bothRead.promise;
      return database.query(text, values, options);
    },
  };
  const servers = await open(counting);
  const found = await Promise.all([servers.get('default'), servers.get('default')]);
  t.same(
    found.map((each) => each?.server.uuid),
    ['default', 'default'],
  );
});
