import { randomUUID } from 'node:crypto';
import t from 'tap';
import { CORE_PARTS, listServers } from '../../../lib/control/servers/server-store.ts';
import { Servers } from '../../../lib/control/servers/servers.ts';
import { systemClock } from '../../../lib/platform/clock.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { migrations } from '../legacy/sighting-support.ts';

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
