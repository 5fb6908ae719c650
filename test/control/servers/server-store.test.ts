import { randomUUID } from 'node:crypto';
import t from 'tap';
import { CORE_PARTS, listServers, storeReports, storeSysinfos } from '../../../lib/control/servers/server-store.ts';
import { Servers } from '../../../lib/control/servers/servers.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';
import { runBehindLock } from '../../support/lock-waits.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { migrations } from '../legacy/heartbeat-support.ts';

t.test('a list ends after a number of bytes, however well the database compresses them', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const servers = new Servers({ database, clock: systemClock, log: silentLogger, datacenter: 'dc' });
  await servers.start();
  t.teardown(() => servers.stop());
  for (const uuid of [randomUUID(), randomUUID(), randomUUID()])
    await servers.recordSysinfo(uuid, { UUID: uuid, Hostname: 'large', Pad: 'a'.repeat(500_000) });
  const part = { limit: 10, offset: 0, bytes: 700_000 };
  const first = await listServers(database, {}, { ...CORE_PARTS, sysinfo: true }, part);
  t.equal(first.servers.length, 2);
  const rest = await listServers(database, {}, { ...CORE_PARTS, sysinfo: true }, { ...part, after: first.next });
  t.same([rest.servers.length, rest.next], [1, undefined]);
});

t.test('what is stored for a server during its removal leaves nothing behind', async (t) => {
  const { url, database } = await freshDatabase(t, { migrations });
  const servers = new Servers({ database, clock: systemClock, log: silentLogger, datacenter: 'dc' });
  await servers.start();
  t.teardown(() => servers.stop());
  const [removed, kept] = [randomUUID(), randomUUID()].sort() as [string, string];
  for (const uuid of [removed, kept]) {
    await servers.recordSysinfo(uuid, { UUID: uuid, Hostname: 'h' });
    await servers.recordReport(uuid, {});
  }
  const report = { vms: {}, memory: {}, disk: {} };
  const sysinfos = [removed, kept].map((serverUuid) => ({ serverUuid, sysinfo: { Hostname: 'next' }, digest: 'd' }));
  // Not committed before both statements wait for it.
  const removal = `select cnapi_remove_server('${randomUUID()}', '${removed}')`;
  const stored = await runBehindLock<string[][]>(url, removal, [
    { name: 'sysinfo', run: () => storeSysinfos(database, sysinfos) },
    {
      name: 'report',
      run: async () => [
        ...(
          await storeReports(
            database,
            sysinfos.map(({ serverUuid }) => ({ serverUuid, epoch: undefined, report })),
          )
        ).keys(),
      ],
    },
  ]);
  t.same(stored, [[kept], [kept]]);
  for (const table of ['cnapi_server_sysinfo', 'cnapi_server_reports']) {
    const { rows } = await database.query(`select server_uuid from ${table}`);
    t.same(rows, [{ server_uuid: kept }], table);
  }
});
