/**
 * The concurrent pairs of the roster on real Postgres, each behind a forced lock wait, in both
 * orders (law 5). In either order epochs only rise, a session loss applies to its own run and epoch
 * only, a death is final, and no running server is left under a run whose rows nobody checks.
 */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import {
  declareLapsed,
  drainRun,
  endRun,
  incrementBeat,
  insertRun,
} from '../../../lib/control/roster/membership/instance-store.ts';
import {
  acceptSession,
  acceptSessions,
  markOwnerlessUnknown,
  readRow,
  recordInventories,
  recordLosses,
  renewRun,
} from '../../../lib/control/roster/status/roster-store.ts';
import { type Leg, runBehindLock } from '../../support/lock-waits.ts';
import { matchLists } from '../../support/match-lists.ts';
import { migrationsOf } from '../../support/migrations-of.ts';
import { freshDatabase } from '../../support/postgres.ts';

t.test('concurrent statements of the roster in both orders', async (t) => {
  const { url, open } = await freshDatabase(t, { migrations: migrationsOf('moray', 'roster') });
  const database = open({ maxConnections: 10 });
  const me = { cnapiUuid: randomUUID(), run: randomUUID() };
  const other = { cnapiUuid: randomUUID(), run: randomUUID() };

  /** A server whose session with `me` is at epoch 1. */
  async function connected() {
    const hello = { serverUuid: randomUUID(), incarnation: randomUUID(), conn: 1, journalId: randomUUID(), epoch: 0 };
    await acceptSession(database, me, hello, null);
    const lock = `select 1 from cnapi_roster_authority where server_uuid = '${hello.serverUuid}' for update`;
    return { hello, serverUuid: hello.serverUuid, lock };
  }
  async function inOrder(lock: string, first: Leg<unknown>, second: Leg<unknown>) {
    return runBehindLock<unknown[]>(url, lock, [first, second]);
  }
  const accept = (hello: Parameters<typeof acceptSession>[2], conn = 2): Leg<unknown> => ({
    name: 'accept',
    run: () => acceptSession(database, other, { ...hello, conn, epoch: 1 }, null),
  });
  const lose = (serverUuid: string): Leg<unknown> => ({
    name: 'loss',
    run: () => recordLosses(database, me.cnapiUuid, [{ serverUuid, run: me.run, epoch: 1, reason: 'closed' }]),
  });

  t.test('a session loss after an accept is of an old epoch and changes nothing', async (t) => {
    const { hello, serverUuid, lock } = await connected();
    const [accepted, lost] = await inOrder(lock, accept(hello), lose(serverUuid));
    t.match(accepted, { epoch: 2 });
    t.same(lost, { applied: [], locked: [serverUuid] }, 'it does not wait for a locked row');
    t.same(await lose(serverUuid).run(), { applied: [], locked: [] });
    t.match(await readRow(database, serverUuid), { status: 'running', epoch: 2, run: other.run });
  });

  t.test('an accept after a session loss sets the server to running under a new epoch', async (t) => {
    const { hello, serverUuid } = await connected();
    t.same(await lose(serverUuid).run(), { applied: [serverUuid], locked: [] });
    t.match(await accept(hello).run(), { epoch: 2 });
    t.match(await readRow(database, serverUuid), { status: 'running', epoch: 2, run: other.run });
  });

  t.test('of two accepts of one incarnation the higher conn gets the row, in either order', async (t) => {
    const one = await connected();
    const [low, high] = await inOrder(one.lock, accept(one.hello, 2), accept(one.hello, 3));
    matchLists(t, [low, high], [{ epoch: 2 }, { epoch: 3 }]);
    const two = await connected();
    const [first, late] = await inOrder(two.lock, accept(two.hello, 3), accept(two.hello, 2));
    t.match(first, { epoch: 2 });
    t.equal(late, undefined);
    t.match(await readRow(database, two.serverUuid), { conn: 3, epoch: 2 });
  });

  t.test('of two accepts of a new server one creates the row and the other continues from it', async (t) => {
    const hello = { serverUuid: randomUUID(), incarnation: randomUUID(), journalId: randomUUID(), epoch: 0 };
    const both = await Promise.all([1, 2].map((conn) => acceptSession(database, me, { ...hello, conn }, null)));
    const epochs = both.flatMap((one) => (one ? [one.epoch] : []));
    t.equal(new Set(epochs).size, epochs.length, 'no epoch is assigned twice');
    t.match(await readRow(database, hello.serverUuid), { conn: 2, epoch: Math.max(...epochs) });
  });

  t.test('batches that name the same rows in opposite orders do not deadlock', async (t) => {
    const [one, middle, two] = [await connected(), await connected(), await connected()];
    const shared = [one.hello, middle.hello, two.hello];
    const acceptAll = (hellos: typeof shared, conn: number): Leg<unknown> => ({
      name: 'accept',
      run: async () => {
        const all = hellos.map((hello) => ({ ...hello, conn, epoch: 1 }));
        return (await acceptSessions(database, other, all)).size;
      },
    });
    // Taken in the order they are named, each would hold a row that the other needs while both wait
    // for the middle one.
    t.same(await inOrder(middle.lock, acceptAll(shared, 2), acceptAll(shared.toReversed(), 3)), [3, 3]);
    for (const { serverUuid } of shared) t.match(await readRow(database, serverUuid), { conn: 3, epoch: 3 });
  });

  t.test('an inventory and an accept record what the row says last, in either order', async (t) => {
    const record = (serverUuid: string): Leg<unknown> => ({
      name: 'inventory',
      run: () => recordInventories(database, [{ serverUuid, run: me.run, epoch: 1 }]),
    });
    const one = await connected();
    const [, tooLate] = await inOrder(one.lock, accept(one.hello), record(one.serverUuid));
    t.same(tooLate, { applied: [], locked: [one.serverUuid] }, 'it does not wait for a locked row');
    t.same(await record(one.serverUuid).run(), { applied: [], locked: [] });
    t.match(await readRow(database, one.serverUuid), { epoch: 2, inventoryEpoch: 0 });
    const two = await connected();
    t.same(await record(two.serverUuid).run(), { applied: [two.serverUuid], locked: [] });
    t.match(await accept(two.hello).run(), { epoch: 2 });
    t.match(await readRow(database, two.serverUuid), { epoch: 2, inventoryEpoch: 1 });
  });

  t.test('of two incarnations that replace the same third one, one has to retry', async (t) => {
    const { hello, lock } = await connected();
    const replace = (incarnation: string): Leg<unknown> => ({
      name: 'replace',
      run: () =>
        acceptSession(database, other, { ...hello, incarnation, journalId: randomUUID(), epoch: 0 }, hello.incarnation),
    });
    const [first, second] = await inOrder(lock, replace(randomUUID()), replace(randomUUID()));
    t.match(first, { epoch: 2 });
    t.equal(second, undefined);
  });

  t.test('a beat and a declaration of death at the same time', async (t) => {
    const run = randomUUID();
    const identity = {
      cnapiUuid: randomUUID(),
      url: 'http://127.0.0.1:1',
      host: '127.0.0.1',
      port: 1,
      pid: 1,
      version: '0',
    };
    const lock = (one: string) => `select 1 from cnapi_instances where run = '${one}' for update`;
    const beat = (one: string): Leg<unknown> => ({
      name: 'beat',
      run: () => incrementBeat(database, one, { agents: 0 }),
    });
    const die = (one: string): Leg<unknown> => ({
      name: 'death',
      run: () => declareLapsed(database, [{ run: one, beat: 0 }]),
    });
    await insertRun(database, run, identity, null);
    t.same(await inOrder(lock(run), beat(run), die(run)), [{ isDraining: false }, []], 'a beat in time saves the run');
    const doomed = randomUUID();
    await insertRun(database, doomed, identity, null);
    t.same(
      await inOrder(lock(doomed), die(doomed), beat(doomed)),
      [[], { isDraining: false }],
      'a locked row is not declared dead, because its beat may be in progress',
    );
    t.same(await declareLapsed(database, [{ run: doomed, beat: 1 }]), [doomed]);
    t.equal(await incrementBeat(database, doomed, { agents: 0 }), undefined, 'a late beat finds its run dead');
  });

  t.test('of two instances that leave at once one stays, and one that dies meanwhile does not count', async (t) => {
    const { url, database } = await freshDatabase(t, { migrations: migrationsOf('moray', 'roster') });
    const queued = <Results extends unknown[]>(lock: string, legs: { [Index in keyof Results]: Leg<Results[Index]> }) =>
      runBehindLock<Results>(url, lock, legs);
    const identity = (cnapiUuid: string) => ({ cnapiUuid, url: '', host: '127.0.0.1', port: 1, pid: 1, version: '0' });
    const [a, b, c] = [randomUUID(), randomUUID(), randomUUID()];
    for (const run of [a, b]) await insertRun(database, run, identity(run), null);
    const drain = (run: string): Leg<unknown> => ({ name: 'drain', run: () => drainRun(database, run) });
    const end = (run: string): Leg<unknown> => ({ name: 'end', run: () => endRun(database, run) });
    const lockOf = (run: string) => `select 1 from cnapi_instances where run = '${run}' for update`;
    const [first] = [a, b].sort() as [string, string];
    t.same(await queued(lockOf(first), [drain(a), drain(b)]), ['draining', 'last']);
    t.equal(await drainRun(database, a), 'draining', 'a repeated announcement is harmless');
    await insertRun(database, c, identity(c), null);
    t.same(
      await queued(lockOf(c), [end(c), drain(b)]),
      [undefined, 'last'],
      'the only other instance died just before',
    );
    t.equal(await drainRun(database, c), 'gone');
    t.match(await incrementBeat(database, a, { agents: 0 }), { isDraining: true }, 'its beat reports it');
    t.match(await incrementBeat(database, b, { agents: 0 }), { isDraining: false });
  });

  t.test('a move to a new run and an ownerless decision at the same time', async (t) => {
    const judge = (serverUuid: string): Leg<unknown> => ({
      name: 'ownerless',
      run: () => markOwnerlessUnknown(database, other, [{ serverUuid, run: me.run, epoch: 1 }]),
    });
    const newRun = randomUUID();
    const renew = (serverUuid: string): Leg<unknown> => ({
      name: 'renew',
      run: () => renewRun(database, newRun, [{ serverUuid, run: me.run, epoch: 1 }]),
    });
    const kept = await connected();
    await renewRun(database, newRun, [{ serverUuid: kept.serverUuid, run: me.run, epoch: 1 }]);
    t.same(await judge(kept.serverUuid).run(), [], 'moved first: the decision is about a run that the row has left');
    const skipped = await connected();
    const [renewed, judged] = await inOrder(skipped.lock, renew(skipped.serverUuid), judge(skipped.serverUuid));
    t.same([renewed, judged], [{ applied: [], locked: [skipped.serverUuid] }, []], 'neither waits for a locked row');
    t.same(await renew(skipped.serverUuid).run(), { applied: [skipped.serverUuid], locked: [] });
    const lost = await connected();
    t.same(await judge(lost.serverUuid).run(), [lost.serverUuid]);
    t.same(
      await renew(lost.serverUuid).run(),
      { applied: [], locked: [] },
      'decided first: the session is closed and its agent reconnects',
    );
    t.match(await readRow(database, lost.serverUuid), { status: 'unknown', run: me.run });
  });

  t.test('two writers of many rows in opposite orders do not deadlock', async (t) => {
    const servers = await Promise.all(Array.from({ length: 40 }, connected));
    const losses = servers.map(({ serverUuid }) => ({ serverUuid, run: me.run, epoch: 1, reason: 'closed' as const }));
    const [one, two, ownerlessRows] = await Promise.all([
      recordLosses(database, me.cnapiUuid, losses),
      recordLosses(database, me.cnapiUuid, losses.toReversed()),
      markOwnerlessUnknown(database, other, losses.toReversed()),
    ]);
    const last = await recordLosses(database, me.cnapiUuid, losses);
    const applied = [...one.applied, ...two.applied, ...ownerlessRows, ...last.applied];
    t.equal(new Set(applied).size, 40, 'each');
    t.equal(applied.length, 40, 'once');
  });
});
