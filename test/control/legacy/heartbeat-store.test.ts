import { randomUUID } from 'node:crypto';
import t from 'tap';
import {
  deleteOrphanedHeartbeats,
  readHeartbeatRows,
  recordHeartbeats,
  recordSilences,
} from '../../../lib/control/legacy/heartbeat-store.ts';
import { endRun } from '../../../lib/control/roster/membership/instance-store.ts';
import {
  markOwnerlessUnknown,
  pollRows,
  recordLosses,
  renewRun,
} from '../../../lib/control/roster/status/roster-store.ts';
import { readStatusHistory } from '../../../lib/control/roster/status/status-history.ts';
import type { Database } from '../../../lib/platform/postgres/database.ts';
import { matchLists } from '../../support/match-lists.ts';
import { freshPglite } from '../../support/pglite.ts';
import { freshDatabase, type Teardown } from '../../support/postgres.ts';
import { migrations, openFleet } from './heartbeat-support.ts';

const databases: [string, (t: Teardown) => Promise<Database>][] = [
  ['Postgres', async (t) => (await freshDatabase(t, { migrations })).database],
  ['PGlite', async (t) => freshPglite(t, { migrations })],
];

for (const [kind, open] of databases) {
  t.test(`heartbeats on ${kind}`, async (t) => {
    const database = await open(t);
    const fleet = await openFleet(database);
    const { a, b, newRun, newServer, see, lastRecord, judge, connect, row, status } = fleet;

    t.test('the first heartbeat of a server makes its row, without a run, and each has a later record', async (t) => {
      const server = await newServer();
      const first = await see(server);
      t.match(first, { serverUuid: server, epoch: 1, cameBack: true });
      t.match(await row(server), { status: 'running', reason: 'legacy-heartbeat', run: null, cnapiUuid: null });
      const second = await see(server, 0, b);
      t.match(second, { serverUuid: server, epoch: 1, cameBack: false });
      t.ok((second?.lastRecord ?? 0) > (first?.lastRecord ?? 0));
      t.equal(await lastRecord(server), second?.lastRecord);
    });

    t.test('heartbeats of a missing server create nothing and do not delay others in the statement', async (t) => {
      const [server, unknownServer] = [await newServer(), randomUUID()];
      const heartbeats = [unknownServer, server].map((serverUuid) => ({ serverUuid, ageMs: 0 }));
      matchLists(t, await recordHeartbeats(database, a, () => heartbeats), [{ serverUuid: server, cameBack: true }]);
      t.equal(await row(unknownServer), undefined);
      const { rows } = await database.query('select 1 from cnapi_status where server_uuid = $1::uuid', [unknownServer]);
      t.same(rows, []);
    });

    t.test('a silence decision needs an unchanged last record and epoch', async (t) => {
      const server = await newServer();
      const first = await see(server);
      t.same(await judge(server, 1, 0), [], 'an outdated record');
      t.same(await judge(server, 2), [], 'another epoch');
      const second = await see(server);
      t.same(await judge(server, 1, first?.lastRecord), [], 'seen since, by any instance');
      t.same(await judge(server, 1), [server]);
      t.equal(await status(server), 'unknown legacy-silent epoch 1');
      t.same(await judge(server, 1, second?.lastRecord), [], 'once');
      t.match(await see(server), { epoch: 2, cameBack: true });
      t.equal(await status(server), 'running legacy-heartbeat epoch 2', 'a return raises the epoch');
      const history = await readStatusHistory(database, server, { limit: 10, offset: 0 });
      t.same(
        history.map(({ reason, cnapi_uuid }) => [reason, cnapi_uuid]),
        [
          ['legacy-heartbeat', a],
          ['legacy-silent', b],
          ['legacy-heartbeat', a],
        ],
      );
    });

    t.test('many servers in one statement', async (t) => {
      const servers = await Promise.all(Array.from({ length: 20 }, newServer));
      const heartbeats = servers.map((serverUuid) => ({ serverUuid, ageMs: 10 }));
      t.equal((await recordHeartbeats(database, a, () => heartbeats)).filter(({ cameBack }) => cameBack).length, 20);
      const rows = (await readHeartbeatRows(database, 100)).filter(({ serverUuid }) => servers.includes(serverUuid));
      t.equal(rows.length, 20);
      const odd = rows.map((one, n) => ({ ...one, lastRecord: one.lastRecord - (n % 2) }));
      t.equal((await recordSilences(database, b, odd)).length, 10);
      t.equal((await readHeartbeatRows(database, 3)).length, 3, 'bounded');
    });

    t.test('a row under a live run is left alone', async (t) => {
      const [server, writer] = [await newServer(), await newRun()];
      await connect(server, writer);
      const seen = await see(server);
      t.match(seen, { epoch: null, cameBack: false });
      t.equal(await status(server), 'running connected epoch 1 of a run');
      t.same(await judge(server, 1, seen?.lastRecord), [], 'a silence of posts does not affect it');
    });

    t.test(
      'a row under a dead run is taken over before it is ownerless for long, without leaving running',
      async (t) => {
        const [server, writer] = [await newServer(), await newRun()];
        await connect(server, writer);
        const { since } = (await row(server)) ?? {};
        await endRun(database, writer.run);
        t.match(await see(server), { epoch: 2, cameBack: true });
        t.match(await row(server), { status: 'running', run: null, since });
        const held = { serverUuid: server, run: writer.run, epoch: 1 };
        t.same(await markOwnerlessUnknown(database, writer, [held]), [], 'it has no owner and needs none');
        const renewed = await renewRun(database, randomUUID(), [held]);
        t.same(renewed, { applied: [], locked: [] }, 'the session of the dead run is over');
        t.same(await recordLosses(database, a, [{ ...held, reason: 'closed' }]), { applied: [], locked: [] });
        t.notOk((await pollRows(database, writer.run)).some(({ serverUuid }) => serverUuid === server));
      },
    );

    t.test('only a heartbeat newer than the last frame of a session sets its server running', async (t) => {
      const [server, writer] = [await newServer(), await newRun()];
      await see(server);
      await connect(server, writer);
      await recordLosses(database, a, [{ serverUuid: server, run: writer.run, epoch: 2, reason: 'closed' }]);
      t.match(await see(server, 5000), { epoch: null, cameBack: false });
      t.equal(await status(server), 'unknown closed epoch 2 of a run');
      t.match(await see(server), { epoch: 3, cameBack: true });
    });

    t.test('a heartbeat unknown to the silence decision undoes it, although it was posted earlier', async (t) => {
      const server = await newServer();
      await see(server);
      await judge(server, 1);
      t.match(await see(server, 3000), { epoch: 2, cameBack: true });
    });

    t.test('a database clock that was set back keeps no server from running', async (t) => {
      const [server, writer] = [await newServer(), await newRun()];
      await see(server);
      await connect(server, writer);
      await recordLosses(database, a, [{ serverUuid: server, run: writer.run, epoch: 2, reason: 'closed' }]);
      await database.query(
        `update cnapi_roster_authority set since = since + interval '1 hour' where server_uuid = $1::uuid`,
        [server],
      );
      await database.query(
        `update cnapi_status set last_heartbeat = last_heartbeat + interval '1 hour' where server_uuid = $1::uuid`,
        [server],
      );
      const back = await see(server);
      t.match(back, { cameBack: true });
      t.ok(((await see(server))?.lastRecord ?? 0) > (back?.lastRecord ?? 0), 'it is still recorded');
    });

    t.test('an accept takes over the row of a legacy agent, whatever incarnation it names', async (t) => {
      const [server, writer] = [await newServer(), await newRun()];
      await see(server);
      t.match(await connect(server, writer), { epoch: 2, previousRun: null, isAlternating: false });
      await recordLosses(database, a, [{ serverUuid: server, run: writer.run, epoch: 2, reason: 'closed' }]);
      t.match(await see(server), { epoch: 3, cameBack: true });
      t.match(
        await connect(server, writer),
        { epoch: 4, isAlternating: false },
        'another incarnation, without a probe',
      );
      t.match(await row(server), { status: 'running', reason: 'connected', run: writer.run });
    });

    t.test('an agent that fell back to posting returns only under a higher conn', async (t) => {
      const [server, writer] = [await newServer(), await newRun()];
      const agent = { incarnation: randomUUID(), journalId: randomUUID() };
      await connect(server, writer, { ...agent, conn: 3 });
      await endRun(database, writer.run);
      await see(server);
      t.equal(await connect(server, await newRun(), { ...agent, conn: 3, epoch: 1 }), undefined);
      t.match(await connect(server, await newRun(), { ...agent, conn: 4, epoch: 1 }), { epoch: 3 });
    });

    t.test('a removed server stays removed until a new sysinfo', async (t) => {
      const server = await newServer();
      await see(server);
      await fleet.servers.remove(server, a);
      t.equal(await see(server), undefined, 'its agent still posts');
      t.equal(await status(server), 'unknown removed epoch 1');
      await fleet.servers.recordSysinfo(server, { UUID: server });
      t.match(await see(server), { epoch: 2, cameBack: true });
    });

    t.test('a server without any record counts as zero, and can still be set unknown', async (t) => {
      const server = await newServer();
      await see(server);
      await database.query('delete from cnapi_status where server_uuid = $1::uuid', [server]);
      await database.query('delete from cnapi_legacy_heartbeats where $1::uuid = any (servers)', [server]);
      const found = (await readHeartbeatRows(database, 100)).find(({ serverUuid }) => serverUuid === server);
      t.same(found, { serverUuid: server, epoch: 1, lastRecord: 0 });
      t.same(await judge(server, 1, 0), [server]);
    });

    t.test('heartbeats of removed servers are deleted after a day, those of others are kept', async (t) => {
      const [kept, removed, fresh] = [await newServer(), await newServer(), await newServer()];
      for (const server of [kept, removed, fresh]) await see(server);
      for (const server of [removed, fresh]) {
        await fleet.servers.remove(server, a);
      }
      await database.query(
        `update cnapi_status set last_heartbeat = cnapi_now() - interval '25 hours' where server_uuid = any ($1::uuid[])`,
        [[kept, removed]],
      );
      t.equal(await deleteOrphanedHeartbeats(database, 100), 1);
      const { rows } = await database.query<{ server_uuid: string }>(
        'select server_uuid from cnapi_status where server_uuid = any ($1::uuid[])',
        [[kept, removed, fresh]],
      );
      t.same(rows.map(({ server_uuid }) => server_uuid).sort(), [kept, fresh].sort());
    });
  });
}
