/**
 * Records of legacy heartbeats are added, read by id, and folded. What that costs does not depend
 * on how many were made while another transaction keeps an old snapshot, and what is read of a
 * server does not depend on whether its record still exists.
 */
import pg from 'pg';
import t from 'tap';
import {
  deleteOldHeartbeats,
  readHeartbeatRows,
  recordHeartbeats,
  recordSilences,
} from '../../../lib/control/legacy/heartbeat-store.ts';
import { ALL_PARTS, listServers, readServer } from '../../../lib/control/servers/server-store.ts';
import type { Database, Queryable } from '../../../lib/platform/postgres/database.ts';
import { blocksRead } from '../../support/blocks-read.ts';
import { freshPglite } from '../../support/pglite.ts';
import { freshDatabase, type Teardown } from '../../support/postgres.ts';
import { migrations, openFleet } from './heartbeat-support.ts';

const SERVERS = 20;

t.test('an open snapshot makes no statement about heartbeats slower, however many were recorded since', async (t) => {
  const { database, url } = await freshDatabase(t, { migrations });
  const { a, b, newServer } = await openFleet(database);
  const servers = await Promise.all(Array.from({ length: SERVERS }, newServer));
  const heartbeats = servers.map((serverUuid) => ({ serverUuid, ageMs: 0 }));
  const dump = new pg.Client({ connectionString: url });
  await dump.connect();
  t.teardown(() => dump.end());
  await dump.query('begin isolation level repeatable read');
  await dump.query('select count(*) from cnapi_status, cnapi_legacy_heartbeats');

  let foldTo = 0;
  const pass = async (times: number) => {
    for (let time = 1; time <= times; time += 1) {
      await recordHeartbeats(database, time % 2 === 0 ? a : b, () => heartbeats);
      if (time % 5 === 0) foldTo = await deleteOldHeartbeats(database, foldTo);
    }
  };
  const works: Record<string, (counted: Queryable) => Promise<unknown>> = {
    recordHeartbeats: (counted) => recordHeartbeats(counted, a, () => heartbeats),
    readHeartbeatRows: (counted) => readHeartbeatRows(counted, 1_000),
    recordSilences: (counted) =>
      recordSilences(
        counted,
        a,
        servers.map((serverUuid) => ({ serverUuid, epoch: 1, lastRecord: 1 })),
      ),
    readServer: (counted) => readServer(counted, servers[0] ?? '', ALL_PARTS),
    lastHeartbeats: (counted) => counted.query('select * from cnapi_last_heartbeats($1::uuid[])', [servers]),
    foldHeartbeats: (counted) => deleteOldHeartbeats(counted, foldTo),
  };
  const measure = async () => {
    const read: Record<string, number> = {};
    for (const [name, work] of Object.entries(works)) read[name] = await blocksRead(database, work);
    return read;
  };
  await pass(20);
  const before = await measure();
  await pass(200);
  // Less than one more block for each lookup: an index may get one level higher.
  for (const [name, read] of Object.entries(await measure()))
    t.ok(read < 2 * (before[name] ?? 0), `${name}: ${before[name]} blocks at first, ${read} after 200 more records`);
});

const databases: [string, (t: Teardown) => Promise<Database>][] = [
  ['Postgres', async (t) => (await freshDatabase(t, { migrations })).database],
  ['PGlite', async (t) => freshPglite(t, { migrations })],
];

for (const [kind, open] of databases) {
  t.test(`folding on ${kind}`, async (t) => {
    const database = await open(t);
    const { newServer, see, judge, lastRecord, status } = await openFleet(database);
    const records = async () =>
      (await database.query<{ id: number }>('select id from cnapi_legacy_heartbeats')).rows.length;
    /** The time of the last heartbeat, by each way to read it. */
    const lastHeard = async (serverUuid: string) => {
      const listed = await listServers(database, { uuids: [serverUuid] }, ALL_PARTS, { limit: 1, offset: 0 });
      const [one, other] = [await readServer(database, serverUuid, ALL_PARTS), listed.servers[0]];
      t.equal(one?.lastHeartbeat, other?.lastHeartbeat);
      return one?.lastHeartbeat;
    };

    t.test('a silent server keeps its last record, its last heartbeat and its silence', async (t) => {
      const [silent, posting] = [await newServer(), await newServer()];
      for (const server of [silent, posting]) await see(server, 60_000);
      const first = await lastHeard(silent);
      const [seen, latest] = [await see(silent), await see(posting)];
      const heard = await lastHeard(silent);
      t.ok((heard ?? '') > (first ?? ''), 'the newest heartbeat counts');
      t.equal(await deleteOldHeartbeats(database, 0), latest?.lastRecord, 'it names the newest record');
      t.equal(await deleteOldHeartbeats(database, seen?.lastRecord ?? 0), latest?.lastRecord);
      t.equal(await records(), 1);
      t.equal(await lastRecord(silent), seen?.lastRecord);
      t.equal(await lastHeard(silent), heard);
      await see(posting);
      t.equal(await lastRecord(posting), (latest?.lastRecord ?? 0) + 1);
      t.same(await judge(silent, 1, seen?.lastRecord), [silent]);
      t.equal(await lastHeard(silent), heard, 'also once it is unknown');
    });

    t.test('everything can be folded, and a heartbeat after that is newer', async (t) => {
      const server = await newServer();
      const seen = await see(server);
      t.equal(await deleteOldHeartbeats(database, seen?.lastRecord ?? 0), seen?.lastRecord);
      t.equal(await records(), 0);
      t.equal(await deleteOldHeartbeats(database, 0), 0, 'there is no record');
      await see(server);
      t.same(await judge(server, 1, seen?.lastRecord), []);
      t.same(await judge(server, 1), [server]);
      t.equal(await status(server), 'unknown legacy-silent epoch 1');
    });
  });
}

t.test('a record of a locked row is left, and the others are folded', async (t) => {
  const { database, url } = await freshDatabase(t, { migrations });
  const { newServer, see, lastRecord } = await openFleet(database);
  const [locked, free] = [await newServer(), await newServer()];
  const seen = [await see(locked), await see(free)];
  const holder = new pg.Client({ connectionString: url });
  await holder.connect();
  t.teardown(() => holder.end());
  await holder.query('begin');
  await holder.query('select 1 from cnapi_status where server_uuid = $1 for update', [locked]);
  const left = async () => (await database.query<{ id: number }>('select id from cnapi_legacy_heartbeats')).rows;
  const newest = seen[1]?.lastRecord ?? 0;
  for (let time = 0; time < 3; time += 1) await deleteOldHeartbeats(database, newest);
  t.same(await left(), [{ id: seen[0]?.lastRecord }]);
  t.same(
    [await lastRecord(locked), await lastRecord(free)],
    seen.map((one) => one?.lastRecord),
  );
  await holder.query('commit');
  await deleteOldHeartbeats(database, newest);
  t.same(await left(), []);
  t.same(
    [await lastRecord(locked), await lastRecord(free)],
    seen.map((one) => one?.lastRecord),
  );
});
