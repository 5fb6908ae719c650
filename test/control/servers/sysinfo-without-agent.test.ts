import { randomUUID } from 'node:crypto';
import t from 'tap';
import { Servers } from '../../../lib/control/servers/servers.ts';
import { storeSysinfoWithoutAgent } from '../../../lib/control/servers/sysinfo-without-agent.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';
import { runBehindLock } from '../../support/lock-waits.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { migrations } from '../legacy/heartbeat-support.ts';

t.test('what Ur says of a server replaces nothing of an agent that connects meanwhile', async (t) => {
  const { url, database } = await freshDatabase(t, { migrations });
  const servers = new Servers({ database, clock: systemClock, log: silentLogger, datacenter: 'dc' });
  await servers.start();
  t.teardown(() => servers.stop());
  const serverUuid = randomUUID();
  const sysinfo = { UUID: serverUuid, Hostname: 'h' };
  await servers.recordSysinfo(serverUuid, { ...sysinfo, From: 'agent' }, 'digest');
  const kept = { serverUuid, sysinfo: { ...sysinfo, From: 'ur' }, digest: 'other' };
  const byUr = () => storeSysinfoWithoutAgent(database, kept, ['ur-sysinfo', 'removed']);
  const shown = async () => (await servers.get(serverUuid))?.server.sysinfo?.From;
  await database.query(
    `insert into cnapi_roster_authority (server_uuid, status, epoch, reason, since)
       values ($1::uuid, 'running', 1, 'ur-sysinfo', now())`,
    [serverUuid],
  );
  // Not committed before the statement waits for it.
  const accepts = `update cnapi_roster_authority set reason = 'session-began' where server_uuid = '${serverUuid}'`;
  t.same(await runBehindLock<[boolean]>(url, accepts, [{ name: 'sysinfo', run: byUr }]), [false]);
  t.equal(await shown(), 'agent');
  await database.query("update cnapi_roster_authority set reason = 'removed'");
  t.equal(await byUr(), true, 'a server that was removed had no agent since');
  t.equal(await shown(), 'ur');
  t.equal(await storeSysinfoWithoutAgent(database, { ...kept, serverUuid: randomUUID() }, []), false);
});
