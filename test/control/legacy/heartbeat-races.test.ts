/**
 * Legacy heartbeats, decisions about silence and accepts in concurrent pairs on real Postgres, each
 * behind a forced lock wait, in both orders (law 5). In either order a server with a recent
 * heartbeat is not left `unknown`, and a session keeps its server.
 */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { readHeartbeatRows, recordHeartbeats, recordSilences } from '../../../lib/control/legacy/heartbeat-store.ts';
import type { RecordedHeartbeat } from '../../../lib/control/legacy/legacy-servers.ts';
import { endRun } from '../../../lib/control/roster/membership/instance-store.ts';
import { markOwnerlessUnknown, recordLosses, renewRun } from '../../../lib/control/roster/status/roster-store.ts';
import { type Leg, runBehindLock } from '../../support/lock-waits.ts';
import { matchLists } from '../../support/match-lists.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { migrations, openFleet } from './heartbeat-support.ts';

t.test('concurrent statements about legacy heartbeats in both orders', async (t) => {
  const { url, open } = await freshDatabase(t, { migrations });
  const database = open({ maxConnections: 12 });
  const { a, servers, newRun, newServer, see, lastRecord, judge, connect, row, status } = await openFleet(database);
  const run = await newRun();

  const rosterRow = (server: string) =>
    `select 1 from cnapi_roster_authority where server_uuid = '${server}' for update`;
  const statusRow = (server: string) => `select 1 from cnapi_status where server_uuid = '${server}' for update`;
  const leg = (name: string, work: () => Promise<unknown>): Leg<unknown> => ({ name, run: work });
  const heartbeat = (server: string) => leg('heartbeat', () => see(server));
  const statusChange = (server: string) => leg('status change', () => judge(server, 1));
  const accept = (server: string) => leg('accept', () => connect(server, run));
  const inOrder = (lock: string, ...legs: Leg<unknown>[]) => runBehindLock<unknown[]>(url, lock, legs);
  /** A legacy agent's server with one heartbeat. */
  async function heardServer(): Promise<string> {
    const server = await newServer();
    await see(server);
    return server;
  }
  async function judged(): Promise<string> {
    const server = await heardServer();
    await judge(server, 1);
    return server;
  }

  t.test('heartbeat then silence decision: the newer heartbeat wins, on either row', async (t) => {
    for (const lockOf of [statusRow, rosterRow]) {
      const server = await heardServer();
      const [seen, applied] = await inOrder(lockOf(server), heartbeat(server), statusChange(server));
      t.equal(await lastRecord(server), (seen as RecordedHeartbeat).lastRecord);
      t.same(applied, [], 'it does not wait for a locked row');
      t.equal(await status(server), 'running legacy-heartbeat epoch 1');
    }
  });

  t.test('silence decision then heartbeat: unknown for a moment, then running, although posted before', async (t) => {
    const server = await heardServer();
    // The heartbeat waits for the decision itself, which is applied and not yet committed.
    const applied = `select cnapi_record_legacy_silences('${a}', '{${server}}', '{1}', '{${await lastRecord(server)}}')`;
    const heardBefore = leg('heartbeat', () => see(server, 250));
    matchLists(t, await inOrder(applied, heardBefore), [{ epoch: 2, cameBack: true }]);
    t.equal(await status(server), 'running legacy-heartbeat epoch 2');
  });

  t.test('two heartbeats of an unknown server: one sets it running, and both are recorded', async (t) => {
    const server = await judged();
    const [first, second] = await inOrder(rosterRow(server), heartbeat(server), heartbeat(server));
    t.match(first, { cameBack: true });
    t.match(second, { cameBack: false, epoch: 2 });
    t.ok((second as RecordedHeartbeat).lastRecord > (first as RecordedHeartbeat).lastRecord);
  });

  t.test('two instances record the first heartbeat of a server at once', async (t) => {
    const server = await newServer();
    const both = await Promise.all([see(server), see(server)]);
    t.equal(both.filter((one) => one?.cameBack).length, 1);
    t.equal(await status(server), 'running legacy-heartbeat epoch 1');
  });

  t.test('heartbeat and accept, in either order: the session gets the row', async (t) => {
    const one = await judged();
    const [seen, accepted] = await inOrder(rosterRow(one), heartbeat(one), accept(one));
    t.match(seen, { epoch: 2, cameBack: true });
    t.match(accepted, { epoch: 3 });
    t.equal(await status(one), 'running connected epoch 3 of a run');
    const two = await judged();
    const [acceptedFirst, seenLast] = await inOrder(rosterRow(two), accept(two), heartbeat(two));
    t.match(acceptedFirst, { epoch: 2 });
    t.match(seenLast, { epoch: null, cameBack: false });
    t.equal(await status(two), 'running connected epoch 2 of a run');
  });

  t.test('the first heartbeat and the first accept of a server at once', async (t) => {
    const server = await newServer();
    await Promise.all([see(server), connect(server, run)]);
    t.match(await row(server), { status: 'running', reason: 'connected', run: run.run });
  });

  t.test('silence decision and accept, in either order: the session gets the row', async (t) => {
    const one = await heardServer();
    const [applied, accepted] = await inOrder(rosterRow(one), statusChange(one), accept(one));
    t.same(applied, [], 'it does not wait for a locked row');
    t.match(accepted, { epoch: 2 });
    const two = await heardServer();
    const [acceptedFirst, appliedLast] = await inOrder(rosterRow(two), accept(two), statusChange(two));
    t.match(acceptedFirst, { epoch: 2 });
    t.same(appliedLast, []);
    const three = await heardServer();
    t.same(await judge(three, 1), [three]);
    t.match(await connect(three, run), { epoch: 2 }, 'the next heartbeat sets it running at once');
    for (const server of [one, two, three]) t.equal(await status(server), 'running connected epoch 2 of a run');
  });

  t.test('session loss and heartbeat: one posted before the session ended does not undo the loss', async (t) => {
    const lossOf = (server: string) =>
      leg('loss', () => recordLosses(database, a, [{ serverUuid: server, run: run.run, epoch: 1, reason: 'closed' }]));
    const one = await newServer();
    await connect(one, run);
    t.same(await lossOf(one).run(), { applied: [one], locked: [] });
    t.match(await see(one, 5000), { epoch: null });
    t.equal(await status(one), 'unknown closed epoch 1 of a run');
    const two = await newServer();
    await connect(two, run);
    matchLists(t, await inOrder(rosterRow(two), heartbeat(two), lossOf(two)), [
      { epoch: null },
      { applied: [], locked: [two] },
    ]);
    t.same(await lossOf(two).run(), { applied: [two], locked: [] });
    t.match(await see(two), { epoch: 2, cameBack: true }, 'the next, newer one does');
  });

  t.test("a heartbeat meets a dead run's move to a new run and its ownerless decision", async (t) => {
    const held = (serverUuid: string, of: string) => ({ serverUuid, run: of, epoch: 1 });
    const dead = await newRun();
    const servers = await Promise.all([newServer(), newServer(), newServer()]);
    for (const server of servers) await connect(server, dead);
    await endRun(database, dead.run);
    const [one, two, three] = servers as [string, string, string];
    const renew = (server: string) => leg('renew', () => renewRun(database, run.run, [held(server, dead.run)]));
    const [seen, renewed] = await inOrder(rosterRow(one), heartbeat(one), renew(one));
    matchLists(
      t,
      [seen, renewed],
      [{ epoch: 2 }, { applied: [], locked: [one] }],
      'a locked row is left for the next tick',
    );
    t.same(await renew(one).run(), { applied: [], locked: [] }, 'then the session is closed');
    t.same(await renew(two).run(), { applied: [two], locked: [] });
    t.match(await heartbeat(two).run(), { epoch: null }, 'the session is live again');
    const orphan = leg('ownerless', () => markOwnerlessUnknown(database, run, [held(three, dead.run)]));
    matchLists(t, await inOrder(rosterRow(three), heartbeat(three), orphan), [{ epoch: 2 }, []]);
    t.equal(await status(three), 'running legacy-heartbeat epoch 2');
  });

  t.test('removal and heartbeat, in either order: the server stays removed', async (t) => {
    for (const isFirst of [true, false]) {
      const server = await judged();
      const late = heartbeat(server);
      const removal = leg('removal', () => servers.remove(server, a));
      await inOrder(rosterRow(server), ...(isFirst ? [removal, late] : [late, removal]));
      t.match(await status(server), /^unknown removed/, isFirst ? 'removal first' : 'heartbeat first');
    }
  });

  t.test('writers of many rows in opposite orders do not deadlock', async (t) => {
    const servers = await Promise.all(Array.from({ length: 40 }, heardServer));
    const heartbeats = servers.map((serverUuid) => ({ serverUuid, ageMs: 0 }));
    const silences = (await readHeartbeatRows(database, 1000)).filter(({ serverUuid }) => servers.includes(serverUuid));
    await Promise.all([
      recordHeartbeats(database, a, () => heartbeats),
      recordHeartbeats(database, randomUUID(), () => heartbeats.toReversed()),
      recordSilences(database, a, silences.toReversed()),
      recordSilences(database, a, silences),
      recordHeartbeats(database, a, () => heartbeats),
    ]);
    for (const server of servers) t.match(await row(server), { status: 'running', run: null });
  });
});
