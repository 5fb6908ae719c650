/**
 * The waitlist's functions, one after the other, on every supported database. Concurrent calls:
 * races.test.ts.
 */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import { listTickets } from '../../../lib/control/waitlist/ticket-list-store.ts';
import {
  deleteEnded,
  deleteOldTickets,
  deleteQueues,
  deleteTicket,
  expireTickets,
  readLastQueue,
  readTicket,
  readTicketStatuses,
  releaseTicket,
  renewTicket,
  repairQueues,
} from '../../../lib/control/waitlist/ticket-store.ts';
import type { Database } from '../../../lib/platform/postgres/database.ts';
import { matchLists } from '../../support/match-lists.ts';
import { freshPglite } from '../../support/pglite.ts';
import { freshDatabase } from '../../support/postgres.ts';
import {
  add,
  addOne,
  addSome,
  backdate,
  bounds,
  complaints,
  createTicket,
  migrations,
  newQueue,
  newTicket,
  rowsOf,
  statusesOf,
  statusOf,
} from './support/waitlist-database.ts';

const databases = {
  Postgres: async (t: Test): Promise<Database> => (await freshDatabase(t, { migrations })).database,
  PGlite: (t: Test): Promise<Database> => freshPglite(t, { migrations }),
};

for (const [kind, fresh] of Object.entries(databases)) t.test(`the waitlist in ${kind}`, (t) => theWaitlist(t, fresh));

async function theWaitlist(t: Test, fresh: (t: Test) => Promise<Database>): Promise<void> {
  const db = await fresh(t);
  /** After each of these all of I4 holds. */
  const check = (name: string, body: (t: Test) => Promise<void>) =>
    t.test(name, async (t) => {
      await body(t);
      t.same(await complaints(db), []);
    });

  check('the first ticket is active and the next ones wait, each returned with its queue', async (t) => {
    const queue = newQueue();
    const [one, two, three] = [
      newTicket(queue, { action: 'provision', reqId: 'r1' }),
      newTicket(queue),
      newTicket(queue),
    ];
    matchLists(t, await createTicket(db, one, bounds), [
      { ...queue, serverUuid: undefined, uuid: one.uuid, status: 'active' },
    ]);
    await createTicket(db, two, bounds);
    const rows = rowsOf(await createTicket(db, three, bounds));
    t.same(
      rows.map(({ uuid, status }) => [uuid, status]),
      [
        [one.uuid, 'active'],
        [two.uuid, 'queued'],
        [three.uuid, 'queued'],
      ],
    );
    matchLists(t, rows?.[0], {
      action: 'provision',
      reqid: 'r1',
      extra: {},
      expires_text: null,
      server_uuid: queue.serverUuid,
    });
    t.match(await readTicket(db, two.uuid), rows?.[1]);
    t.equal(await readTicket(db, randomUUID()), undefined);
  });

  check('the data of a ticket is returned unchanged', async (t) => {
    const extra = { 'a"b': ['é', 1e21, null, { deep: '\u0000' }], $: 'select' };
    const odd = newQueue({ scope: `s'(*)\\`, id: 'a(b' });
    const [row] = await add(db, odd, { extra, expiry: { atMs: Date.parse('3000-01-01'), text: '3000' } });
    t.match(row, { extra, scope: odd.scope, id: odd.id, expires_text: '3000', expires_at: new Date('3000-01-01') });
    t.equal(row?.status, 'active');
    t.match(await add(db, odd), { length: 2 }, 'it still has its queue');
    for (const text of ['0001', '9999']) {
      const uuid = await addOne(db, newQueue(), { expiry: { atMs: Date.parse(text), text } });
      const { rows } = await db.query<{ year: string }>(
        `select to_char(expires_at at time zone 'UTC', 'YYYY-MM-DD') as year from cnapi_waitlist_tickets
           where uuid = $1::uuid`,
        [uuid],
      );
      t.same(rows, [{ year: `${text}-01-01` }]);
    }
  });

  check('queues differ by server, scope and id', async (t) => {
    const queue = newQueue();
    for (const other of [{}, { serverUuid: 'default' }, { scope: 'VM' }, { id: `${queue.id} ` }])
      matchLists(t, await add(db, { ...queue, ...other }), [{ status: 'active' }]);
  });

  check('an answer lists a bounded number of waiting tickets and the new one, and a full queue refuses', async (t) => {
    const queue = newQueue();
    const uuids = await addSome(db, queue, 5);
    const last = newTicket(queue);
    const rows = rowsOf(await createTicket(db, last, { maxWaiting: 5, maxOpen: 100, maxListed: 2 }));
    t.same(
      rows.map(({ uuid }) => uuid),
      [...uuids.slice(0, 3), last.uuid],
    );
    t.equal(await createTicket(db, newTicket(queue), { maxWaiting: 5, maxOpen: 100, maxListed: 2 }), 'queue-full');
    await deleteTicket(db, uuids[2] ?? '');
    t.match(await createTicket(db, newTicket(queue), { maxWaiting: 5, maxOpen: 100, maxListed: 2 }), { length: 4 });
    t.equal(
      await createTicket(db, newTicket(queue), { maxWaiting: 5, maxOpen: 100, maxListed: 2 }),
      'queue-full',
      'it counts beyond many places',
    );
  });

  check('after a release the lock passes to the next ticket in order, until none waits', async (t) => {
    const queue = newQueue();
    const [one = '', two = '', three = ''] = await addSome(db, queue, 3);
    t.same(await releaseTicket(db, one), {
      status: 'finished',
      moved: [
        { uuid: one, status: 'finished', moved: true },
        { uuid: two, status: 'active', moved: true },
      ],
    });
    t.match(await releaseTicket(db, three), { status: 'finished', moved: { length: 1 } }, 'a waiting ticket gives up');
    t.match(await releaseTicket(db, two), { status: 'finished', moved: { length: 1 } });
    matchLists(t, await add(db, queue), [{ status: 'active' }], 'the queue starts again');
  });

  check('a ticket that has ended does not change any more', async (t) => {
    const queue = newQueue();
    const [finished = '', expired = '', active = ''] = await addSome(db, queue, 3);
    await releaseTicket(db, finished);
    await backdate(db, expired);
    await expireTickets(db, 10);
    for (const [uuid, status] of [
      [finished, 'finished'],
      [expired, 'expired'],
    ] as const) {
      t.same(await releaseTicket(db, uuid), { status, moved: [] });
      t.same(await renewTicket(db, uuid, { inMs: 1000 }), { status, moved: [] });
    }
    t.equal(await statusOf(db, active), 'active');
    t.equal(await releaseTicket(db, randomUUID()), undefined);
    t.equal(await renewTicket(db, randomUUID(), { inMs: 1000 }), undefined);
    t.same(await deleteTicket(db, randomUUID()), []);
  });

  check('a ticket can be deleted in any status, and the lock of an active one passes on', async (t) => {
    const queue = newQueue();
    const [one = '', two = '', three = '', four = ''] = await addSome(db, queue, 4);
    t.same(await deleteTicket(db, three), [{ uuid: three, status: 'deleted' }]);
    t.same(await deleteTicket(db, one), [
      { uuid: one, status: 'deleted' },
      { uuid: two, status: 'active' },
    ]);
    await releaseTicket(db, two);
    t.same(await deleteTicket(db, two), [{ uuid: two, status: 'deleted' }]);
    t.same(await statusesOf(db, [one, two, three, four]), ['gone', 'gone', 'gone', 'active']);
    await deleteTicket(db, four);
  });

  check('due tickets expire, waiting or active, and the lock passes to one that is not due', async (t) => {
    const queue = newQueue();
    const uuids = await addSome(db, queue, 5);
    await backdate(db, ...uuids.filter((_, n) => n !== 3));
    const moved = await expireTickets(db, 2);
    t.same(
      moved.map(({ status }) => status).sort(),
      ['active', 'expired', 'expired', 'expired'],
      'two were asked for, and the third was at the head',
    );
    matchLists(t, await expireTickets(db, 10), [{ uuid: uuids[4], status: 'expired' }]);
    t.same(await statusesOf(db, uuids), ['expired', 'expired', 'expired', 'active', 'expired']);
    t.same(await expireTickets(db, 10), []);
  });

  check('one call expires at most the requested number and the rest of one queue', async (t) => {
    const queues = [newQueue(), newQueue(), newQueue()];
    const uuids: string[] = [];
    for (const queue of queues) uuids.push(...(await addSome(db, queue, 10)));
    await backdate(db, ...uuids);
    await db.query(
      `update cnapi_waitlist_tickets set expires_at = expires_at - interval '1 minute' where status = 'active'`,
    );
    for (let left = 30; left > 0; ) {
      const { length } = await expireTickets(db, 5);
      t.ok(length >= 5 && length <= 15, `${length} of ${left}`);
      left -= length;
    }
    t.same(new Set(await statusesOf(db, uuids)), new Set(['expired']));
  });

  check('a release never passes the lock to a ticket that is due', async (t) => {
    const queue = newQueue();
    const [one = '', two = '', three = ''] = await addSome(db, queue, 3);
    await backdate(db, one, two);
    matchLists(t, await releaseTicket(db, one), {
      moved: [
        { uuid: one, status: 'finished' },
        { uuid: two, status: 'expired' },
        { uuid: three, status: 'active' },
      ],
    });
  });

  check('an expiry in the past is accepted: the ticket becomes active, then expires', async (t) => {
    const queue = newQueue();
    const [row] = await add(db, queue, { expiry: { atMs: 0, text: '1970-01-01' } });
    t.match(row, { status: 'active', expires_text: '1970-01-01' });
    matchLists(t, await expireTickets(db, 10), [{ uuid: row?.uuid, status: 'expired' }]);
  });

  check('a renewed ticket stays, and one past its expiry counts as expired for every caller', async (t) => {
    const queue = newQueue();
    const [one = '', two = ''] = await addSome(db, queue, 2);
    t.same(await renewTicket(db, one, { atMs: Date.parse('3000'), text: '3000' }), { status: 'active', moved: [] });
    t.match(await readTicket(db, one), { expires_text: '3000', expires_at: new Date('3000') });
    await renewTicket(db, two, { inMs: 60_000 });
    const { rows } = await db.query<{ left: number }>(
      `select extract(epoch from expires_at - cnapi_now())::float8 as left from cnapi_waitlist_tickets where uuid = $1::uuid`,
      [two],
    );
    t.ok(Number(rows[0]?.left) > 30 && Number(rows[0]?.left) <= 60);
    await backdate(db, one);
    matchLists(t, await renewTicket(db, one, { inMs: 60_000 }), {
      status: 'expired',
      moved: [
        { uuid: one, status: 'expired' },
        { uuid: two, status: 'active' },
      ],
    });
  });

  check('a change of a ticket is dated, and no other ticket of its queue seems changed', async (t) => {
    const queue = newQueue();
    const tickets = await addSome(db, queue, 8);
    const [one = '', two = '', three = '', four = '', five = '', six = '', seven = ''] = tickets;
    /** The places of those tickets that `change` has changed. */
    const changedBy = async (change: () => Promise<unknown>) => {
      await db.query(
        `update cnapi_waitlist_tickets set updated_at = updated_at - interval '1 hour'
           where status in ('queued', 'active')`,
      );
      const before = await changeTimes();
      await change();
      const after = await changeTimes();
      return tickets.flatMap((uuid, index) => (after.get(uuid) === before.get(uuid) ? [] : [index + 1]));
    };
    const changeTimes = async () => {
      const { rows } = await db.query<{ uuid: string; updated_at: Date }>(
        'select uuid, updated_at from cnapi_waitlist_tickets where uuid = any ($1::uuid[])',
        [tickets],
      );
      return new Map(rows.map(({ uuid, updated_at }) => [uuid, updated_at.getTime()]));
    };
    t.same(await changedBy(() => releaseTicket(db, one)), [1, 2], 'it and the next holder');
    t.same(await changedBy(() => renewTicket(db, three, { inMs: 3_600_000 })), [3]);
    await backdate(db, two);
    t.same(await changedBy(() => renewTicket(db, two, { inMs: 3_600_000 })), [2, 3], 'it was due, and expired');
    await backdate(db, four);
    t.same(await changedBy(() => releaseTicket(db, three)), [3, 4, 5], 'one that was due did not become active');
    await backdate(db, five, six);
    t.same(await changedBy(() => expireTickets(db, 10)), [5, 6, 7]);
    t.equal(await statusOf(db, seven), 'active');
  });

  const setClock = (step: string) =>
    db.query(`create or replace function cnapi_now() returns timestamptz language sql stable
      as $$ select clock_timestamp() + interval '${step}' $$`);

  check(
    "all of a server's tickets can be deleted, whatever the clock says, without one becoming active or another server losing any",
    async (t) => {
      const serverUuid = randomUUID();
      const other = await addOne(db, newQueue());
      const gone: string[] = [];
      for (let n = 0; n < 3; n++) gone.push(...(await addSome(db, newQueue({ serverUuid }), 3)));
      await releaseTicket(db, gone[0] ?? '');
      await setClock('-1 hour');
      t.teardown(() => setClock('0 seconds'));
      const last = await readLastQueue(db);
      const late = newQueue({ serverUuid });
      const young = await addOne(db, late);
      const first = await deleteQueues(db, serverUuid, { last, maxQueues: 2 });
      t.equal(first.queues, 2);
      const second = await deleteQueues(db, serverUuid, { last, maxQueues: 2 });
      t.equal(second.queues, 1);
      t.same(await deleteQueues(db, serverUuid, { last, maxQueues: 2 }), { queues: 0, moved: [] });
      t.same(
        [...first.moved, ...second.moved].map(({ uuid }) => uuid).sort(),
        gone.slice(1).sort(),
        'the tickets that had not ended',
      );
      t.equal(await deleteEnded(db, serverUuid, { last, maxTickets: 10 }), 1);
      t.equal(await deleteEnded(db, serverUuid, { last, maxTickets: 10 }), 0);
      t.same(new Set(await statusesOf(db, gone)), new Set(['gone']));
      t.same(await statusesOf(db, [other, young]), ['active', 'active']);
    },
  );

  check('old ended tickets are deleted in batches, and others stay', async (t) => {
    const queue = newQueue();
    const [one = '', two = '', three = ''] = await addSome(db, queue, 3);
    await releaseTicket(db, one);
    await backdate(db, two);
    await expireTickets(db, 10);
    t.equal(await deleteOldTickets(db, 30, 10), 0);
    // The guard concerns operations; here the test creates the past.
    await db.query('alter table cnapi_waitlist_tickets disable trigger cnapi_waitlist_guard');
    await db.query(`update cnapi_waitlist_tickets set updated_at = cnapi_now() - interval '31 days'`);
    await db.query('alter table cnapi_waitlist_tickets enable trigger cnapi_waitlist_guard');
    t.equal(await deleteOldTickets(db, 30, 1), 1);
    while ((await deleteOldTickets(db, 30, 10)) > 0);
    t.same(await statusesOf(db, [one, two, three]), ['gone', 'gone', 'active']);
  });

  check('constraints refuse impossible status changes and a second active ticket', async (t) => {
    const queue = newQueue();
    const [one = '', two = ''] = await addSome(db, queue, 2);
    const set = (uuid: string, change: string) =>
      db.query(`update cnapi_waitlist_tickets set ${change} where uuid = '${uuid}'`);
    await t.rejects(set(two, `status = 'active'`), { code: '23505' });
    await t.rejects(set(one, `status = 'queued'`), /cannot become queued/);
    await t.rejects(set(one, 'place = 7'), /cannot become/);
    await t.rejects(set(one, 'queue = 7'), /cannot become/);
    await t.rejects(set(one, `status = 'lost'`), { code: '23514' });
    await releaseTicket(db, one);
    for (const status of ['queued', 'active', 'expired', 'finished'])
      await t.rejects(set(one, `status = '${status}'`), /is finished at place 1/);
  });

  check('a queue without an active ticket is found and continues, and an empty row is deleted', async (t) => {
    t.same(await repairQueues(db, 10), { queues: [], moved: [] });
    const [queue, empty] = [newQueue(), newQueue()];
    const [one = '', two = ''] = await addSome(db, queue, 2);
    const lonely = await addOne(db, empty);
    await db.query('delete from cnapi_waitlist_tickets where uuid = any ($1::uuid[])', [[one, lonely]]);
    const { queues, moved } = await repairQueues(db, 10);
    t.equal(queues.length, 2);
    matchLists(t, moved, [{ uuid: two, status: 'active' }]);
    t.same(await repairQueues(db, 10), { queues: [], moved: [] });
  });

  check(
    "a server's tickets are listed in order of creation, page by page, and the state of many can be read",
    async (t) => {
      const serverUuid = randomUUID();
      const uuids = await addSome(db, newQueue({ serverUuid }), 7);
      await releaseTicket(db, uuids[0] ?? '');
      const page = async (limit: number, offset: number) =>
        (await listTickets(db, serverUuid, { limit, offset })).map(({ uuid }) => uuid);
      t.same(await page(1000, 0), uuids);
      t.same([...(await page(3, 0)), ...(await page(3, 3)), ...(await page(3, 6))], uuids);
      t.same(await page(3, 7), []);
      const standings = new Map(await readTicketStatuses(db, [...uuids.slice(0, 2), randomUUID()]));
      t.same(
        standings,
        new Map([
          [uuids[0], 'finished'],
          [uuids[1], 'active'],
        ] as [string, string][]),
      );
    },
  );
}
