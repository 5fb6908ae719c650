import { randomUUID } from 'node:crypto';
import t from 'tap';
import {
  declareLapsed,
  endRun,
  incrementBeat,
  insertRun,
  readLive,
} from '../../../lib/control/roster/membership/instance-store.ts';
import { RETURN_BURST, RETURN_EVERY_MS } from '../../../lib/control/roster/status/authority-row.ts';
import {
  acceptSession,
  acceptSessions,
  markOwnerlessUnknown,
  pollRows,
  readRow,
  recordInventories,
  recordLosses,
  renewRun,
} from '../../../lib/control/roster/status/roster-store.ts';
import { readStatusHistory } from '../../../lib/control/roster/status/status-history.ts';
import type { Database } from '../../../lib/platform/postgres/database.ts';
import { matchLists } from '../../support/match-lists.ts';
import { migrationsOf } from '../../support/migrations-of.ts';
import { freshPglite } from '../../support/pglite.ts';
import { freshDatabase, type Teardown } from '../../support/postgres.ts';
import { removeAuthority } from '../../support/remove-authority.ts';

const migrations = migrationsOf('moray', 'roster');
const identity = (cnapiUuid: string) => ({
  cnapiUuid,
  url: 'http://127.0.0.1:1',
  host: '127.0.0.1',
  port: 1,
  pid: 1,
  version: '0',
});

function newHello(fields = {}) {
  return { serverUuid: randomUUID(), incarnation: randomUUID(), conn: 1, journalId: randomUUID(), epoch: 0, ...fields };
}
const newWriter = () => ({ cnapiUuid: randomUUID(), run: randomUUID() });

const databases: [string, (t: Teardown) => Promise<Database>][] = [
  ['Postgres', async (t) => (await freshDatabase(t, { migrations })).database],
  ['PGlite', async (t) => freshPglite(t, { migrations })],
];

for (const [kind, open] of databases) {
  t.test(`the roster's statements on ${kind}`, async (t) => {
    const database = await open(t);

    t.test('a first session creates the row at epoch 1, and later ones raise the epoch', async (t) => {
      const writer = newWriter();
      const hello = newHello();
      t.same(await acceptSession(database, writer, hello, null), { epoch: 1, previousRun: null, isAlternating: false });
      const other = newWriter();
      t.same(await acceptSession(database, other, { ...hello, conn: 2, epoch: 1 }, null), {
        epoch: 2,
        previousRun: writer.run,
        isAlternating: false,
      });
      t.match(await readRow(database, hello.serverUuid), { epoch: 2, status: 'running', run: other.run, conn: 2 });
    });

    t.test('the epoch rises above the one the agent has seen, even if the row was lost', async (t) => {
      const hello = newHello({ epoch: 41 });
      t.match(await acceptSession(database, newWriter(), hello, null), { epoch: 42 });
      t.equal(await acceptSession(database, newWriter(), { ...hello, conn: 2, epoch: 43 + 2 ** 32 }, null), undefined);
      t.equal(await acceptSession(database, newWriter(), newHello({ epoch: 2 ** 32 + 1 }), null), undefined);
    });

    t.test('a conn that is not higher is not accepted', async (t) => {
      const hello = newHello({ conn: 3 });
      await acceptSession(database, newWriter(), hello, null);
      t.equal(await acceptSession(database, newWriter(), hello, null), undefined);
      t.equal(await acceptSession(database, newWriter(), { ...hello, conn: 2 }, null), undefined);
    });

    t.test('another incarnation waits until the first is dead or gone, and alternation is detected', async (t) => {
      const [first, second] = [newHello(), newHello()];
      second.serverUuid = first.serverUuid;
      await acceptSession(database, newWriter(), first, null);
      t.equal(await acceptSession(database, newWriter(), second, null), undefined, 'the first one is still connected');
      t.match(await acceptSession(database, newWriter(), second, first.incarnation), { isAlternating: false });
      t.match(await acceptSession(database, newWriter(), { ...first, conn: 2 }, second.incarnation), {
        isAlternating: true,
      });
    });

    t.test('a server may return from unknown a number of times at once, then once per period', async (t) => {
      const writer = newWriter();
      const hello = newHello();
      let conn = 0;
      const come = () => {
        conn += 1;
        return acceptSession(database, writer, { ...hello, conn }, null);
      };
      const leave = (epoch: number) =>
        recordLosses(database, writer.cnapiUuid, [{ ...hello, run: writer.run, epoch, reason: 'closed' }]);
      const backdate = (interval: string) =>
        database.query(
          'update cnapi_roster_authority set returns_quota_full_at = returns_quota_full_at - $2::text::interval where server_uuid = $1::uuid',
          [hello.serverUuid, interval],
        );
      /** Undoes the time that has passed since the last return, if it is below RETURN_EVERY_MS. */
      const stopTime = () =>
        database.query(
          `update cnapi_roster_authority set returns_quota_full_at = cnapi_now() + interval '1 ms' * $2::int
             * ceil((1000 * extract(epoch from returns_quota_full_at - cnapi_now()) - 1) / $2::int)
           where server_uuid = $1::uuid`,
          [hello.serverUuid, RETURN_EVERY_MS],
        );
      for (let each = 0; each <= RETURN_BURST; each += 1) {
        const accepted = await come();
        await stopTime();
        t.ok(accepted, `return ${each}`);
        t.ok(await come(), 'it may be moved as often as it likes while it runs');
        await leave((accepted?.epoch ?? 0) + 1);
      }
      await stopTime();
      t.equal(await come(), undefined, 'one more return is too many');
      const row = await readRow(database, hello.serverUuid);
      t.match(row, { status: 'unknown', conn: conn - 1 });
      const wait = row?.returnsInMs ?? 0;
      t.ok(wait > 0 && wait <= RETURN_EVERY_MS, `it is told to return in ${wait} ms`);
      await backdate(`${RETURN_EVERY_MS} ms`);
      t.match(await readRow(database, hello.serverUuid), { returnsInMs: 0 });
      const again = await come();
      t.ok(again, 'it returns after a period');
      await stopTime();
      await leave(again?.epoch ?? 0);
      t.equal(await come(), undefined);
      await backdate('-1 hour');
      t.ok(await come(), 'a database whose clock was set back refuses nobody');
    });

    t.test('of many servers accepted at once, each is checked against its own row', async (t) => {
      const [mine, other] = [newWriter(), newWriter()];
      const [fresh, again, behind, tooFar] = [newHello(), newHello(), newHello({ conn: 5 }), newHello()];
      const fromAfar = newHello({ epoch: 2 ** 32 + 1 });
      const before = await acceptSessions(database, other, [again, behind, tooFar]);
      t.same([...before.keys()].sort(), [again, behind, tooFar].map(({ serverUuid }) => serverUuid).sort());
      const accepted = await acceptSessions(database, mine, [
        fresh,
        { ...again, conn: 2, epoch: 7 },
        { ...behind, conn: 4, epoch: 1 },
        { ...tooFar, conn: 2, epoch: 2 ** 32 + 2 },
        fromAfar,
      ]);
      t.same(
        accepted,
        new Map([
          [fresh.serverUuid, { epoch: 1, previousRun: null, isAlternating: false }],
          [again.serverUuid, { epoch: 8, previousRun: other.run, isAlternating: false }],
        ]),
      );
      const held = { serverUuid: fresh.serverUuid, run: mine.run, epoch: 1 };
      const lost = { serverUuid: behind.serverUuid, run: mine.run, epoch: 1 };
      t.same((await recordInventories(database, [lost, held])).applied, [fresh.serverUuid]);
      t.match(await readRow(database, behind.serverUuid), { run: other.run, conn: 5, inventoryEpoch: 0 });
      t.equal(await readRow(database, fromAfar.serverUuid), undefined);
    });

    t.test('a rolled back journal is not accepted once an inventory of it was recorded', async (t) => {
      const writer = newWriter();
      const hello = newHello();
      await acceptSession(database, writer, hello, null);
      await acceptSession(database, writer, { ...hello, conn: 2 }, null);
      const { serverUuid } = hello;
      const record = (epoch: number) => recordInventories(database, [{ serverUuid, run: writer.run, epoch }]);
      t.same(await record(1), { applied: [], locked: [] });
      t.same(await record(2), { applied: [serverUuid], locked: [] });
      t.equal(await acceptSession(database, writer, { ...hello, conn: 3, epoch: 1 }, null), undefined);
      t.match(await acceptSession(database, writer, { ...hello, conn: 3, epoch: 2 }, null), { epoch: 3 });
      const anew = { ...hello, epoch: 0, journalId: randomUUID() };
      t.match(await acceptSession(database, writer, { ...anew, conn: 4 }, null), { epoch: 4 });
    });

    t.test('an older journal is not accepted after another one has replaced it', async (t) => {
      const writer = newWriter();
      const hello = newHello();
      const { serverUuid } = hello;
      const accept = (fields: Partial<typeof hello>) => acceptSession(database, writer, { ...hello, ...fields }, null);
      const record = (epoch: number) => recordInventories(database, [{ serverUuid, run: writer.run, epoch }]);
      await accept({});
      await accept({ conn: 2, epoch: 1 });
      t.same((await record(2)).applied, [serverUuid]);
      const anew = { epoch: 0, journalId: randomUUID() };
      t.match(await accept({ conn: 3, ...anew }), { epoch: 3 });
      t.equal(await accept({ conn: 4, epoch: 1 }), undefined, "it is refused even before the new journal's inventory");
      t.match(await readRow(database, serverUuid), { epoch: 3, inventoryEpoch: 2, journalId: anew.journalId });
      t.match(await accept({ conn: 4, epoch: 2 }), { epoch: 4 }, 'the previous journal is valid until then');
      t.match(await accept({ conn: 5, ...anew, journalId: randomUUID() }), { epoch: 5 });
      t.same((await record(5)).applied, [serverUuid]);
      t.equal(await accept({ conn: 6, epoch: 4 }), undefined, 'the previous journal is not valid after it');
    });

    t.test('a session loss applies to its own run and epoch, and the history keeps each status change', async (t) => {
      const writer = newWriter();
      const hello = newHello();
      const { serverUuid } = hello;
      const lose = (run: string, epoch: number) =>
        recordLosses(database, writer.cnapiUuid, [{ serverUuid, run, epoch, reason: 'silent' }]);
      await acceptSession(database, writer, hello, null);
      const none = { applied: [], locked: [] };
      t.same(await lose(randomUUID(), 1), none);
      t.same(await lose(writer.run, 2), none);
      t.same(await lose(writer.run, 1), { applied: [serverUuid], locked: [] });
      t.same(await lose(writer.run, 1), none, 'once');
      await acceptSession(database, writer, { ...hello, conn: 2 }, null);
      await acceptSession(database, writer, { ...hello, conn: 3 }, null);
      matchLists(t, await readStatusHistory(database, serverUuid, { limit: 10, offset: 0 }), [
        { status: 'running', previous: 'unknown', reason: 'connected', epoch: 2, cnapi_uuid: writer.cnapiUuid },
        { status: 'unknown', previous: 'running', reason: 'silent', epoch: 1, message: /silent/ },
        { status: 'running', previous: null, reason: 'connected', epoch: 1 },
      ]);
    });

    t.test('the row and the history say who decided the status and since when', async (t) => {
      const [first, second, observer] = [newWriter(), newWriter(), newWriter()];
      const hello = newHello();
      const { serverUuid } = hello;
      /** Whether the status was set just now; makes it an hour old. */
      const isNew = async () => {
        const { rows } = await database.query<{ is_new: boolean }>(
          `update cnapi_roster_authority set since = since - interval '1 hour' where server_uuid = $1::uuid
             returning since > cnapi_now() - interval '90 minutes' as is_new`,
          [serverUuid],
        );
        return rows[0]?.is_new;
      };
      const held = ({ run }: { run: string }, epoch: number) => ({ serverUuid, run, epoch });
      await acceptSession(database, first, hello, null);
      t.equal(await isNew(), true);
      await acceptSession(database, second, { ...hello, conn: 2 }, null);
      t.equal(await isNew(), false, 'it has been running all the time');
      t.match(await readRow(database, serverUuid), { cnapiUuid: second.cnapiUuid, reason: 'connected' });
      await recordLosses(database, second.cnapiUuid, [{ ...held(second, 2), reason: 'silent' }]);
      t.equal(await isNew(), true);
      await acceptSession(database, first, { ...hello, conn: 3 }, null);
      t.equal(await isNew(), true);
      t.match(await readRow(database, serverUuid), { cnapiUuid: first.cnapiUuid, reason: 'connected' });
      await markOwnerlessUnknown(database, observer, [held(first, 3)]);
      t.equal(await isNew(), true);
      const history = await readStatusHistory(database, serverUuid, { limit: 10, offset: 0 });
      t.same(
        history.map(({ reason, cnapi_uuid }) => [reason, cnapi_uuid]),
        [
          ['instance-lost', observer.cnapiUuid],
          ['connected', first.cnapiUuid],
          ['silent', second.cnapiUuid],
          ['connected', first.cnapiUuid],
        ],
      );
    });

    t.test('ownerless rows are decided by the run they are under', async (t) => {
      const [dead, observer] = [newWriter(), newWriter()];
      const hello = newHello();
      const { serverUuid } = hello;
      await acceptSession(database, dead, hello, null);
      t.same(await markOwnerlessUnknown(database, observer, [{ serverUuid, run: observer.run, epoch: 1 }]), []);
      t.same(await markOwnerlessUnknown(database, observer, [{ serverUuid, run: dead.run, epoch: 1 }]), [serverUuid]);
      t.match(await readRow(database, serverUuid), {
        status: 'unknown',
        reason: 'instance-lost',
        run: dead.run,
        epoch: 1,
      });
    });

    t.test('a new run takes over the rows of its live sessions unless they moved or were decided', async (t) => {
      const writer = newWriter();
      const [kept, judged, moved] = [newHello(), newHello(), newHello()];
      for (const hello of [kept, judged, moved]) await acceptSession(database, writer, hello, null);
      await recordLosses(database, writer.cnapiUuid, [
        { serverUuid: judged.serverUuid, run: writer.run, epoch: 1, reason: 'closed' },
      ]);
      await acceptSession(database, newWriter(), { ...moved, conn: 2 }, null);
      const newRun = randomUUID();
      const held = [kept, judged, moved].map(({ serverUuid }) => ({ serverUuid, run: writer.run, epoch: 1 }));
      t.same(await renewRun(database, newRun, held), { applied: [kept.serverUuid], locked: [] });
      t.match(await readRow(database, kept.serverUuid), { run: newRun, epoch: 1, status: 'running' });
    });

    t.test('the poll sees my rows and those that are running under no live run', async (t) => {
      const [me, other, dead] = [newWriter(), newWriter(), newWriter()];
      for (const writer of [me, other]) await insertRun(database, writer.run, identity(writer.cnapiUuid), null);
      const hellos = [newHello(), newHello(), newHello()];
      await acceptSession(database, me, hellos[0] as never, null);
      await acceptSession(database, other, hellos[1] as never, null);
      await acceptSession(database, dead, hellos[2] as never, null);
      const polled = await pollRows(database, me.run);
      const seen = new Map(polled.map((one) => [one.serverUuid, one]));
      t.match(seen.get(hellos[0]?.serverUuid ?? ''), { run: me.run, epoch: 1, isRunning: true });
      t.equal(seen.get(hellos[1]?.serverUuid ?? ''), undefined);
      t.match(seen.get(hellos[2]?.serverUuid ?? ''), { run: dead.run, isRunning: true });
      await endRun(database, me.run);
      const own = (await pollRows(database, me.run)).filter(({ run }) => run === me.run);
      t.equal(own.length, 1, 'once, also while this run counts as dead');
    });

    t.test('a removed server keeps its epoch and has no authority', async (t) => {
      const writer = newWriter();
      const hello = newHello();
      await acceptSession(database, writer, hello, null);
      t.same(await removeAuthority(database, writer.cnapiUuid, hello.serverUuid), {
        previousRun: writer.run,
        epoch: 1,
      });
      t.match(await readRow(database, hello.serverUuid), { run: null, status: 'unknown', reason: 'removed', epoch: 1 });
      t.match(await acceptSession(database, writer, { ...hello, conn: 2, epoch: 1 }, null), { epoch: 2 });
      t.equal(await removeAuthority(database, writer.cnapiUuid, randomUUID()), undefined);
    });

    t.test('a declaration of death compares the beat, and is final', async (t) => {
      const { cnapiUuid, run } = newWriter();
      await insertRun(database, run, identity(cnapiUuid), null);
      t.same(await incrementBeat(database, run, { agents: 7 }), { isDraining: false });
      t.same(await declareLapsed(database, [{ run, beat: 0 }]), [], 'it has beaten meanwhile');
      t.match(
        (await readLive(database)).find((one) => one.run === run),
        { beat: 1, agents: 7 },
      );
      t.same(await declareLapsed(database, [{ run, beat: 1 }]), [run]);
      t.equal(await incrementBeat(database, run, { agents: 7 }), undefined);
      t.equal(await insertRun(database, run, identity(cnapiUuid), null), undefined, 'an insert that is repeated, too');
      await endRun(database, run);
      t.equal(
        (await readLive(database)).some((one) => one.run === run),
        false,
      );
    });
  });
}
