import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import { sweepTasks } from '../../../../lib/control/tasks/deadlines/deadline-store.ts';
import {
  claimTasks,
  readBusyServers,
  readInheritedTasks,
  resendTasks,
  settleInventory,
} from '../../../../lib/control/tasks/dispatch/claim-store.ts';
import { taskEnds } from '../../../../lib/control/tasks/store/task.ts';
import { cancelTask } from '../../../../lib/control/tasks/store/task-store.ts';
import type { Database } from '../../../../lib/platform/postgres/database.ts';
import { matchLists } from '../../../support/match-lists.ts';
import { freshPglite } from '../../../support/pglite.ts';
import { freshDatabase } from '../../../support/postgres.ts';
import {
  accept,
  backdate,
  claim,
  claimAll,
  complete,
  create,
  migrations,
  overdueMs,
  record,
  resendMs,
  row,
  seat,
  setUnknown,
} from '../support/task-database.ts';

const sweepTimes = { startByMs: 30_000, overdueMs };

t.test('on Postgres', async (t) => claimTests(t, (await freshDatabase(t, { migrations })).database));
t.test('on PGlite', async (t) => claimTests(t, await freshPglite(t, { migrations })));

async function claimTests(t: Test, db: Database): Promise<void> {
  t.test('a claim numbers the attempt and needs the run and epoch of the roster row', async (t) => {
    const mine = await seat(db);
    const id = await create(db, mine.serverUuid, { params: { sleep: 1 }, timeoutMs: 500 });
    for (const [name, wrong] of [
      ['another run', { run: randomUUID() }],
      ['a lower epoch', { epoch: 0 }],
      ['a higher epoch', { epoch: 2 }],
    ] as const)
      t.same(await claim(db, { ...mine, ...wrong }), [], name);
    matchLists(t, await claim(db, mine), [
      { what: 'send', id, attempt: 1, epoch: 1, params: { sleep: 1 }, timeoutMs: 500 },
    ]);
    t.same(await claim(db, mine), [], 'once');
    await create(db, mine.serverUuid);
    await setUnknown(db, mine.serverUuid);
    t.same(await claim(db, mine), [], 'nor while a session loss is pending against the session');
  });

  t.test('one claim serves many sessions, and each server in the order of its queue', async (t) => {
    const run = randomUUID();
    const seats = [await seat(db, { run }), await seat(db, { run }), await seat(db)];
    const ids = new Map<string, string[]>();
    for (const { serverUuid } of seats)
      ids.set(serverUuid, [await create(db, serverUuid), await create(db, serverUuid)]);
    const orders = await claimAll(db, run, seats);
    for (const [index, { serverUuid }] of seats.entries()) {
      const got = orders.filter((order) => order.serverUuid === serverUuid).map((order) => order.id);
      t.same(got, index === 2 ? [] : ids.get(serverUuid), `server ${index}`);
    }
  });

  t.test('a server is busy from its first queued task to the end of its last one', async (t) => {
    const run = randomUUID();
    const [mine, idle] = [await seat(db, { run }), await seat(db, { run })];
    const foreign = await seat(db);
    for (const { serverUuid } of [mine, mine, foreign]) await create(db, serverUuid);
    t.same(await readBusyServers(db, run), [mine.serverUuid], 'busy servers of this run, once each');
    const orders = await claim(db, mine);
    t.same(await readBusyServers(db, run), [mine.serverUuid], 'claimed');
    for (const { id, attempt } of orders) await record(db, mine, id, complete(), attempt);
    t.same(await readBusyServers(db, run), [], 'ended');
    await create(db, idle.serverUuid);
    t.same(await readBusyServers(db, run), [idle.serverUuid]);
  });

  t.test('a server gets no more params than its connection holds until it accepts some', async (t) => {
    const mine = await seat(db);
    const ids: string[] = [];
    for (let n = 0; n < 7; n++)
      ids.push(await create(db, mine.serverUuid, { params: { text: 'x'.repeat(n === 3 ? 9_000_000 : 1_500_000) } }));
    const options = { sessions: [mine], resendMs };
    const given = async () => {
      const { claimed, saturated, retrySoon } = await claimTasks(db, mine.run, options);
      return {
        ids: claimed.map(({ id }) => ids.indexOf(id)),
        isFull: saturated.length > 0,
        isAgain: retrySoon.length > 0,
      };
    };
    const accept = (index: number) => record(db, mine, ids[index] ?? '', { name: 'accepted' });
    t.same(await given(), { ids: [0, 1, 2], isFull: true, isAgain: false });
    t.same(await given(), { ids: [], isFull: true, isAgain: false });
    await accept(0);
    t.same(await given(), { ids: [3], isFull: true, isAgain: false }, 'a larger one is given too');
    await accept(1);
    await accept(2);
    t.same(await given(), { ids: [], isFull: true, isAgain: false });
    await accept(3);
    t.same(await given(), { ids: [4, 5, 6], isFull: false, isAgain: false });
  });

  t.test('one claim gives a bounded number of tasks, in queue order, and names servers with more', async (t) => {
    const mine = await seat(db);
    for (let n = 0; n < 101; n++) await create(db, mine.serverUuid);
    const { rows } = await db.query<{ id: string }>(
      'select id from cnapi_tasks where server_uuid = $1::uuid order by queued_at, id',
      [mine.serverUuid],
    );
    const options = { sessions: [mine], resendMs };
    const first = await claimTasks(db, mine.run, options);
    t.same(
      first.claimed.map(({ id }) => id),
      rows.slice(0, 100).map(({ id }) => id),
    );
    t.same([first.saturated, first.retrySoon], [[], [mine.serverUuid]]);
    const second = await claimTasks(db, mine.run, options);
    t.same([second.claimed.length, second.saturated, second.retrySoon], [1, [], []]);
  });

  t.test('the next session is told of a cancel at once', async (t) => {
    const old = await seat(db);
    const id = await create(db, old.serverUuid);
    await claim(db, old);
    await cancelTask(db, id);
    await claim(db, old);
    const mine = await accept(db, old);
    t.same(await claim(db, mine), [], 'not before its inventory');
    const [task] = await readInheritedTasks(db, [mine], 100);
    if (task === undefined) throw new Error('not inherited');
    await settleInventory(db, mine.run, [{ task, session: mine, decision: { kind: 'goes-on', started: true } }]);
    matchLists(t, await claim(db, mine), [{ what: 'cancel', id }]);
  });

  t.test('an agent that ends nothing does not keep others from being told to cancel', async (t) => {
    const [deaf, other] = [await seat(db), await seat(db)];
    for (let n = 0; n < 150; n++) await create(db, deaf.serverUuid);
    const id = await create(db, other.serverUuid);
    const all = async () => {
      const orders = [
        ...(await claimAll(db, deaf.run, [deaf, other])),
        ...(await claimAll(db, other.run, [deaf, other])),
      ];
      return orders.filter(({ what }) => what === 'cancel').map((order) => order.id);
    };
    while ((await claim(db, deaf)).length > 0);
    await claim(db, other);
    await db.query('update cnapi_tasks set cancel_requested_at = cnapi_now() where server_uuid = any ($1::uuid[])', [
      [deaf.serverUuid, other.serverUuid],
    ]);
    const told = new Set(await all());
    t.ok(told.has(id));
    t.equal(told.size, 151, 'each task once');
    t.same(await all(), []);
  });

  t.test('an attempt that is not accepted is sent again by the session it was claimed for', async (t) => {
    const mine = await seat(db);
    const id = await create(db, mine.serverUuid);
    await claim(db, mine);
    t.same(await resendTasks(db, [mine], 5000), [], 'not before the deadline');
    await backdate(db, id, 6000);
    t.same(await resendTasks(db, [{ ...mine, epoch: 2 }], 5000), [], 'not by a session of another epoch');
    matchLists(t, await resendTasks(db, [mine], 5000), [{ id, attempt: 1, epoch: 1 }]);
    t.same(await resendTasks(db, [mine], 5000), [], 'not again at once');
    await backdate(db, id, 6000);
    await record(db, mine, id, { name: 'accepted' });
    t.same(await resendTasks(db, [mine], 5000), [], 'not once it is accepted');
  });

  t.test('an agent that accepts nothing does not keep attempts of others from being sent again', async (t) => {
    const [deaf, other] = [await seat(db), await seat(db)];
    for (let n = 0; n < 100; n++) await create(db, deaf.serverUuid, { id: lowUuid(n) });
    const last = await create(db, deaf.serverUuid, { id: `ffffffff${randomUUID().slice(8)}` });
    await db.query('update cnapi_tasks set queued_at = cnapi_now() where id = $1::uuid', [last]);
    await claim(db, deaf);
    await claim(db, deaf);
    const id = await create(db, other.serverUuid);
    await claim(db, other);
    const pass = () =>
      db.query(`update cnapi_tasks set sent_at = sent_at - interval '6 s' where server_uuid = any ($1::uuid[])`, [
        [deaf.serverUuid, other.serverUuid],
      ]);
    await pass();
    const first = await resendTasks(db, [deaf, other], 5000);
    t.equal(first.length, 101, 'a bounded number per server');
    t.ok(first.some((order) => order.id === id));
    const second = await resendTasks(db, [deaf, other], 5000);
    t.equal(second.length, 1, 'the rest follows');
    t.same(await resendTasks(db, [deaf, other], 5000), []);
    await pass();
    const third = await resendTasks(db, [deaf], 5000);
    const firstIds = first.map((order) => order.id).filter((sent) => sent !== id);
    t.same(third.map((order) => order.id).toSorted(), firstIds.toSorted(), 'the one sent longest ago is first');
  });

  t.test('a task that no server takes in time ends, and one that is taken does not', async (t) => {
    const mine = await seat(db);
    const [stale, fresh, taken] = [
      await create(db, mine.serverUuid),
      await create(db, mine.serverUuid),
      await create(db, (await seat(db)).serverUuid),
    ];
    await backdate(db, stale, 31_000);
    await db.query(
      `update cnapi_tasks set state = 'claimed', attempt = 1, epoch = 1, journal_id = $2::uuid, claimed_at = cnapi_now()
      where id = $1::uuid`,
      [taken, mine.journalId],
    );
    await backdate(db, taken, 31_000);
    t.same(await sweepTasks(db, sweepTimes), [stale]);
    t.match(await row(db, stale), { state: 'ended', outcome: 'failure', error: taskEnds.notTaken });
    t.match(await row(db, fresh), { state: 'queued' });
    t.match(await row(db, taken), { state: 'claimed' });
    t.same(
      (await claim(db, mine)).map((order) => order.id),
      [fresh],
      'a swept task is not claimed',
    );
  });

  t.test('an overdue task is cancelled by its authority, or ended if its server is unknown', async (t) => {
    const mine = await seat(db);
    const id = await create(db, mine.serverUuid, { timeoutMs: 1000 });
    await claim(db, mine);
    await record(db, mine, id, { name: 'started' });
    await backdate(db, id, 61_000);
    t.same(await claim(db, mine), [], 'not within its grace');
    await backdate(db, id, 1000);
    matchLists(t, await claim(db, mine), [{ what: 'cancel', id }]);
    t.same(await sweepTasks(db, sweepTimes), [], 'a live server is asked');
    await setUnknown(db, mine.serverUuid);
    t.same(await sweepTasks(db, sweepTimes), [id]);
    t.match(await row(db, id), { error: taskEnds.timedOut });
    t.same(await record(db, mine, id, complete()), [], 'a late end changes nothing');
  });

  t.test('a timeout of 24 days, as earlier versions accepted, makes no sweep or claim fail', async (t) => {
    const mine = await seat(db);
    const id = await create(db, mine.serverUuid, { timeoutMs: 24 * 86_400_000 });
    await claim(db, mine);
    for (const overdueMs of [undefined, sweepTimes.overdueMs, 7_000_000]) {
      t.same(await sweepTasks(db, { startByMs: undefined, overdueMs }), []);
      t.same(await claim(db, mine), []);
    }
    for (const ms of [2_000_000_000, 200_000_000]) await backdate(db, id, ms);
    await setUnknown(db, mine.serverUuid);
    t.same(await sweepTasks(db, { startByMs: undefined, overdueMs: undefined }), [], 'not yet');
    t.same(await sweepTasks(db, sweepTimes), [id]);
  });

  t.test('a claim cancels only tasks that were asked to end, not overdue ones', async (t) => {
    const mine = await seat(db);
    const [late, unwanted] = [
      await create(db, mine.serverUuid, { timeoutMs: 1000 }),
      await create(db, mine.serverUuid),
    ];
    await claim(db, mine);
    await backdate(db, late, 120_000);
    await cancelTask(db, unwanted);
    const { claimed, cancels } = await claimTasks(db, mine.run, { sessions: [mine], resendMs });
    t.strictSame([claimed, cancels.map(({ id }) => id)], [[], [unwanted]]);
  });

  t.test('a sweep takes a bounded number of tasks, and the rest when it is called again', async (t) => {
    const mine = await seat(db);
    const ids = [
      await create(db, mine.serverUuid),
      await create(db, mine.serverUuid),
      await create(db, mine.serverUuid),
    ];
    for (const id of ids) await backdate(db, id, 31_000);
    const swept = [];
    for (const expected of [2, 1, 0]) {
      const some = await sweepTasks(db, sweepTimes, 2);
      t.equal(some.length, expected);
      swept.push(...some);
    }
    t.same(swept.toSorted(), ids.toSorted());
  });

  t.test('a task whose agent answers no cancel ends eventually', async (t) => {
    const mine = await seat(db);
    const id = await create(db, mine.serverUuid, { timeoutMs: 1000 });
    await claim(db, mine);
    await backdate(db, id, 602_000);
    t.same(await sweepTasks(db, sweepTimes), [id]);
  });

  t.test('sending an attempt again does not put off its deadline', async (t) => {
    const mine = await seat(db);
    const timeoutMs = 1000;
    const asked = await create(db, mine.serverUuid, { timeoutMs });
    const swept = await create(db, mine.serverUuid, { timeoutMs });
    await claim(db, mine);
    await backdate(db, asked, 62_000);
    await backdate(db, swept, 602_000);
    t.equal((await resendTasks(db, [mine], 5000)).length, 2);
    matchLists(
      t,
      (await claim(db, mine)).filter(({ id }) => id === asked),
      [{ what: 'cancel' }],
    );
    t.same(await sweepTasks(db, sweepTimes), [swept]);
  });
}

/** A server uuid that sorts before nearly all others. */
const lowUuid = (n: number): string => `0000${1000 + n}${randomUUID().slice(8)}`;
