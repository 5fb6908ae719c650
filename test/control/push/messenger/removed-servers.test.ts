/** The rehab of servers that were removed, on a real Postgres. */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import { abortJob, advanceJob, endJob } from '../../../../lib/control/push/coordinator/coordinator-store.ts';
import { endRehabOfRemoved } from '../../../../lib/control/push/messenger/messenger-store.ts';
import { removeServer } from '../../../../lib/control/servers/server-store.ts';
import { Servers } from '../../../../lib/control/servers/servers.ts';
import { silentLogger } from '../../../../lib/platform/log.ts';
import { systemClock } from '../../../../lib/platform/time/clock.ts';
import { claimedJob, lockOf, seatedDatabase, startAll } from '../job-rows.ts';

/** A job that runs on three servers, which have documents. */
async function started(t: Test) {
  const { database, run, seats } = await seatedDatabase(t, 3);
  const servers = new Servers({ database, clock: systemClock, log: silentLogger, datacenter: 'dc' });
  await servers.start();
  t.teardown(() => servers.stop());
  for (const { serverUuid: UUID } of seats) await servers.recordSysinfo(UUID, { UUID, Hostname: 'h' });
  const duty = await claimedJob(database, run, { seats });
  await startAll(database, duty, seats);
  const abort = { ending: 'aborted', soft: false, reason: 'asked', limit: 9 } as const;
  return {
    ...{ database, duty, seats, uuids: seats.map(({ serverUuid }) => serverUuid) },
    remove: (serverUuid: string) => removeServer(database, randomUUID(), serverUuid),
    lose: (serverUuid: string) =>
      database.query(`update cnapi_roster_authority set status = 'unknown' where server_uuid = $1::uuid`, [serverUuid]),
    async endAborted() {
      await abortJob(database, duty, abort);
      await endJob(database, duty, 'aborted');
    },
    async inRehab() {
      const { rows } = await database.query<{ server_uuid: string }>(
        'select server_uuid from cnapi_push_busy where rehab_since is not null order by server_uuid',
      );
      return rows.map(({ server_uuid }) => server_uuid);
    },
  };
}

t.test('the rehab of a removed server ends; that of others goes on, with or without a session', async (t) => {
  const { database, uuids, remove, lose, endAborted, inRehab } = await started(t);
  const [removed = '', lost = '', connected = ''] = uuids;
  await endAborted();
  t.same(await inRehab(), uuids);
  await lose(lost);
  t.equal(await endRehabOfRemoved(database, 10), 0);
  await remove(removed);
  t.equal(await endRehabOfRemoved(database, 10), 1);
  t.same(await inRehab(), [lost, connected]);
});

t.test('so does one that begins after the removal, when the job loses the node', async (t) => {
  const { database, duty, uuids, remove, inRehab } = await started(t);
  const [removed = ''] = uuids;
  await remove(removed);
  t.equal(await endRehabOfRemoved(database, 10), 0, 'the job still has the server');
  t.match(await advanceJob(database, duty), { nodeCounts: { crashed: 1, running: 2 } });
  t.same(await inRehab(), [removed]);
  t.equal(await endRehabOfRemoved(database, 10), 1);
  t.same(await inRehab(), []);
});

t.test('a removed server whose agent is connected again stays until the agent answers', async (t) => {
  const { database, seats, uuids, remove, endAborted, inRehab } = await started(t);
  await endAborted();
  await remove(uuids[0] ?? '');
  await database.query(
    `update cnapi_roster_authority set status = 'running', run = other.run
       from (select run from cnapi_roster_authority where server_uuid = $2::uuid) as other where server_uuid = $1::uuid`,
    [uuids[0], seats[1]?.serverUuid],
  );
  t.equal(await endRehabOfRemoved(database, 10), 0);
  t.same(await inRehab(), uuids);
});

t.test('some at a time, and a locked row later', async (t) => {
  const { database, uuids, remove, endAborted, inRehab } = await started(t);
  await endAborted();
  for (const uuid of uuids) await remove(uuid);
  await database.transaction(async (holder) => {
    await holder.query(lockOf('cnapi_push_busy', uuids[0] ?? ''));
    t.equal(await endRehabOfRemoved(database, 1), 1);
    t.equal(await endRehabOfRemoved(database, 9), 1);
  });
  t.same(await inRehab(), uuids.slice(0, 1));
  t.equal(await endRehabOfRemoved(database, 9), 1);
});
