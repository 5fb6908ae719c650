/**
 * Sightings, verdicts of silence and accepts in concurrent pairs on real Postgres, each behind a forced lock wait, in both
 * orders (law 5). Whatever the order: a server that was heard is not left `unknown`, and a session is not taken from.
 */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { recordSightings, recordSilences } from '../../../lib/control/legacy/sighting-store.ts';
import { endRun } from '../../../lib/control/roster/instance-store.ts';
import { recordLosses, recordOrphans, renewRun } from '../../../lib/control/roster/roster-store.ts';
import { type Leg, runBehindLock } from '../../support/lock-waits.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { migrations, openFleet } from './sighting-support.ts';

t.test('concurrent pairs', async (t) => {
  const { url, open } = await freshDatabase(t, { migrations });
  const database = open({ maxConnections: 12 });
  const { a, servers, newRun, newServer, see, judge, connect, row, status } = await openFleet(database);
  const run = await newRun();

  const rosterRow = (server: string) =>
    `select 1 from cnapi_roster_authority where server_uuid = '${server}' for update`;
  const statusRow = (server: string) => `select 1 from cnapi_status where server_uuid = '${server}' for update`;
  const leg = (name: string, work: () => Promise<unknown>): Leg<unknown> => ({ name, run: work });
  const sighting = (server: string) => leg('sighting', () => see(server));
  const verdict = (server: string, epoch = 1, count = 1) => leg('verdict', () => judge(server, epoch, count));
  const accept = (server: string) => leg('accept', () => connect(server, run));
  const inOrder = (lock: string, ...legs: Leg<unknown>[]) => runBehindLock<unknown[]>(url, lock, legs);
  /** An old agent's server that was seen once. */
  async function sighted(): Promise<string> {
    const server = await newServer();
    await see(server);
    return server;
  }
  async function judged(): Promise<string> {
    const server = await sighted();
    await judge(server, 1, 1);
    return server;
  }

  t.test('sighting then verdict: the fresher sighting wins, at either row', async (t) => {
    for (const lockOf of [statusRow, rosterRow]) {
      const server = await sighted();
      const [seen, applied] = await inOrder(lockOf(server), sighting(server), verdict(server));
      t.match(seen, { sightings: 2 });
      t.same(applied, [], 'it does not wait for a row that is in use');
      t.equal(await status(server), 'running legacy-heartbeat epoch 1');
    }
  });

  t.test('verdict then sighting: unknown for a moment, then running, though it was heard before that', async (t) => {
    const server = await sighted();
    // The verdict itself is what the sighting waits for: it is applied and not yet committed.
    const applied = `select cnapi_record_old_silences('${a}', '{${server}}', '{1}', '{1}')`;
    const heardBefore = leg('sighting', () => see(server, 250));
    t.match(await inOrder(applied, heardBefore), [{ epoch: 2, cameBack: true }]);
    t.equal(await status(server), 'running legacy-heartbeat epoch 2');
  });

  t.test('sighting and sighting of a server that is unknown: one brings it back, both are counted', async (t) => {
    const server = await judged();
    const [first, second] = await inOrder(rosterRow(server), sighting(server), sighting(server));
    t.match(first, { cameBack: true, sightings: 2 });
    t.match(second, { cameBack: false, sightings: 3, epoch: 2 });
  });

  t.test('the first sightings of a server, by two instances at once', async (t) => {
    const server = await newServer();
    const both = await Promise.all([see(server), see(server)]);
    t.equal(both.filter((one) => one?.cameBack).length, 1);
    t.equal(await status(server), 'running legacy-heartbeat epoch 1');
  });

  t.test('sighting then accept, accept then sighting: the session has the row', async (t) => {
    const one = await judged();
    const [seen, accepted] = await inOrder(rosterRow(one), sighting(one), accept(one));
    t.match(seen, { epoch: 2, cameBack: true });
    t.match(accepted, { epoch: 3 });
    t.equal(await status(one), 'running connected epoch 3 of a run');
    const two = await judged();
    const [acceptedFirst, seenLast] = await inOrder(rosterRow(two), accept(two), sighting(two));
    t.match(acceptedFirst, { epoch: 2 });
    t.match(seenLast, { epoch: null, cameBack: false });
    t.equal(await status(two), 'running connected epoch 2 of a run');
  });

  t.test('the first sighting and the first accept of a server at once', async (t) => {
    const server = await newServer();
    await Promise.all([see(server), connect(server, run)]);
    t.match(await row(server), { status: 'running', reason: 'connected', run: run.run });
  });

  t.test('verdict and accept, in either order: the session has the row', async (t) => {
    const one = await sighted();
    const [applied, accepted] = await inOrder(rosterRow(one), verdict(one), accept(one));
    t.same(applied, [], 'it does not wait for a row that is in use');
    t.match(accepted, { epoch: 2 });
    const two = await sighted();
    const [acceptedFirst, appliedLast] = await inOrder(rosterRow(two), accept(two), verdict(two));
    t.match(acceptedFirst, { epoch: 2 });
    t.same(appliedLast, []);
    const three = await sighted();
    t.same(await judge(three, 1, 1), [three]);
    t.match(await connect(three, run), { epoch: 2 }, 'after it: running again at once');
    for (const server of [one, two, three]) t.equal(await status(server), 'running connected epoch 2 of a run');
  });

  t.test('loss and sighting: one that was heard before the session ended does not undo its end', async (t) => {
    const lossOf = (server: string) =>
      leg('loss', () => recordLosses(database, a, [{ serverUuid: server, run: run.run, epoch: 1, reason: 'closed' }]));
    const one = await newServer();
    await connect(one, run);
    t.same(await lossOf(one).run(), { applied: [one], locked: [] });
    t.match(await see(one, 5000), { epoch: null });
    t.equal(await status(one), 'unknown closed epoch 1 of a run');
    const two = await newServer();
    await connect(two, run);
    t.match(await inOrder(rosterRow(two), sighting(two), lossOf(two)), [
      { epoch: null },
      { applied: [], locked: [two] },
    ]);
    t.same(await lossOf(two).run(), { applied: [two], locked: [] });
    t.match(await see(two), { epoch: 2, cameBack: true }, 'and the next one that is younger does');
  });

  t.test('a sighting and the ends of a dead run: new run, ownerless verdict', async (t) => {
    const held = (serverUuid: string, of: string) => ({ serverUuid, run: of, epoch: 1 });
    const dead = await newRun();
    const servers = await Promise.all([newServer(), newServer(), newServer()]);
    for (const server of servers) await connect(server, dead);
    await endRun(database, dead.run);
    const [one, two, three] = servers as [string, string, string];
    const renew = (server: string) => leg('renew', () => renewRun(database, run.run, [held(server, dead.run)]));
    const [seen, renewed] = await inOrder(rosterRow(one), sighting(one), renew(one));
    t.match([seen, renewed], [{ epoch: 2 }, { applied: [], locked: [one] }], 'a row in use is left for the next tick');
    t.same(await renew(one).run(), { applied: [], locked: [] }, 'and then the session is closed');
    t.same(await renew(two).run(), { applied: [two], locked: [] });
    t.match(await sighting(two).run(), { epoch: null }, 'it stands again');
    const orphan = leg('ownerless', () => recordOrphans(database, run, [held(three, dead.run)]));
    t.match(await inOrder(rosterRow(three), sighting(three), orphan), [{ epoch: 2 }, []]);
    t.equal(await status(three), 'running legacy-heartbeat epoch 2');
  });

  t.test('removal and sighting, in either order: the server stays away', async (t) => {
    for (const isFirst of [true, false]) {
      const server = await judged();
      const late = sighting(server);
      const removal = leg('removal', () => servers.remove(server, a));
      await inOrder(rosterRow(server), ...(isFirst ? [removal, late] : [late, removal]));
      t.match(await status(server), /^unknown removed/, isFirst ? 'removal first' : 'sighting first');
    }
  });

  t.test('many at once, by writers in opposite orders, do not lock each other out', async (t) => {
    const servers = await Promise.all(Array.from({ length: 40 }, sighted));
    const sightings = servers.map((serverUuid) => ({ serverUuid, ageMs: 0 }));
    const silences = servers.map((serverUuid) => ({ serverUuid, epoch: 1, sightings: 1 }));
    await Promise.all([
      recordSightings(database, a, sightings),
      recordSightings(database, randomUUID(), sightings.toReversed()),
      recordSilences(database, a, silences.toReversed()),
      recordSilences(database, a, silences),
      recordSightings(database, a, sightings),
    ]);
    for (const server of servers) t.match(await row(server), { status: 'running', run: null });
  });
});
