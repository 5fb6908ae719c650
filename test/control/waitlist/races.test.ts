/**
 * The concurrent pairs of the waitlist on real Postgres, each behind a forced lock wait, in both
 * orders (law 5): both statements have taken their snapshots before either continues. In either
 * order all of I4 holds afterwards.
 */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import { createTicketOnce } from '../../../lib/control/waitlist/ticket-keys.ts';
import {
  deleteQueues,
  deleteTicket,
  expireTickets,
  readLastQueue,
  releaseTicket,
  renewTicket,
  repairQueues,
  type TicketChange,
} from '../../../lib/control/waitlist/ticket-store.ts';
import { type Leg, runBehindLock } from '../../support/lock-waits.ts';
import { matchLists } from '../../support/match-lists.ts';
import { freshDatabase } from '../../support/postgres.ts';
import {
  addOne,
  addSome,
  backdate,
  bounds,
  complaints,
  createTicket,
  migrations,
  newQueue,
  newTicket,
  type Place,
  statusesOf,
  statusOf,
} from './support/waitlist-database.ts';

t.test('concurrent statements of the waitlist in both orders', async (t) => {
  const { url, open } = await freshDatabase(t, { migrations });
  const db = open({ maxConnections: 10 });

  const check = (name: string, body: (t: Test) => Promise<void>) =>
    t.test(name, async (t) => {
      await body(t);
      t.same(await complaints(db), []);
    });
  const leg = <Result>(name: string, run: () => Promise<Result>): Leg<Result> => ({ name, run });
  const lock = ({ serverUuid, scope, id }: Place) =>
    `select 1 from cnapi_waitlist_queues where server_uuid = '${serverUuid}' and scope = '${scope}' and id = '${id}' for update`;
  const creating = (queue: Place, uuid?: string) =>
    leg('create', () => createTicket(db, newTicket(queue, { uuid: uuid ?? randomUUID() }), bounds));
  const releasing = (uuid: string) => leg('release', () => releaseTicket(db, uuid));
  const deleting = (uuid: string) => leg('delete', () => deleteTicket(db, uuid));
  const renewing = (uuid: string) => leg('renew', () => renewTicket(db, uuid, { inMs: 3_600_000 }));
  const expiring = leg('expire', () => expireTickets(db, 100));
  const repairing = leg('repair', () => repairQueues(db, 100));
  /** The other statement of a pair, in progress. */
  const createSql = ({ serverUuid, scope, id }: Place, uuid: string) =>
    `select * from cnapi_create_ticket('${uuid}', '${serverUuid}', '${scope}', '${id}', null, '{}', null, null, null, 3600000, null, 100)`;
  const releaseSql = (uuid: string) => `select * from cnapi_release_ticket('${uuid}')`;

  /**
   * Every operation that can meet another one at a queue with these tickets, the first of them
   * active, and due if requested.
   */
  const legsFor = async (queue: Place, [active = '', next = active]: string[]) => {
    const last = await readLastQueue(db);
    return {
      create: creating(queue),
      'release the active one': releasing(active),
      'release the next one': releasing(next),
      'delete the active one': deleting(active),
      'delete the next one': deleting(next),
      'delete all': leg('delete all', () => deleteQueues(db, queue.serverUuid, { last, maxQueues: 10 })),
      'renew the active one': renewing(active),
      expire: expiring,
      repair: repairing,
    };
  };
  type Operation = keyof Awaited<ReturnType<typeof legsFor>>;
  const operations = Object.keys(await legsFor(newQueue(), [])) as Operation[];

  for (const first of operations) {
    check(`${first} and each other operation, with and without a waiting ticket, due and not`, async (t) => {
      for (const second of operations) {
        for (const [count, isDue] of [
          [1, false],
          [1, true],
          [3, false],
          [3, true],
        ] as const) {
          const queue = newQueue();
          const uuids = await addSome(db, queue, count);
          if (isDue) await backdate(db, uuids[0] ?? '');
          const legs = await legsFor(queue, uuids);
          await runBehindLock<[unknown, unknown]>(url, lock(queue), [legs[first], legs[second]]);
          const wrong = await complaints(db);
          if (wrong.length > 0) t.fail(`${first}, ${second}, ${count} tickets${isDue ? ', due' : ''}`, { wrong });
        }
      }
    });
  }

  check('create and create where there is no queue yet: one is active, the other one waits', async (t) => {
    const queue = newQueue();
    const [first, second, third] = [randomUUID(), randomUUID(), randomUUID()];
    const legs = [creating(queue, second), creating(queue, third)] as const;
    await runBehindLock<[unknown, unknown]>(url, createSql(queue, first), [...legs]);
    t.same((await statusesOf(db, [first, second, third])).toSorted(), ['active', 'queued', 'queued']);
    t.equal(await statusOf(db, first), 'active');
  });

  check('a create in progress and its repetition give one ticket, with or without a queue', async (t) => {
    const queue = newQueue();
    await addOne(db, queue);
    const [first, second] = [randomUUID(), randomUUID()];
    const creatingOnce = (uuid: string) => {
      const key = { key: 'k', requestHash: 'hash', maxWaiting: 100, maxOpen: 1_000 };
      return leg('create once', () => createTicketOnce(db, newTicket(queue, { uuid }), key));
    };
    const made = await runBehindLock<unknown[]>(url, lock(queue), [creatingOnce(first), creatingOnce(second)]);
    t.same(made, [
      { uuid: first, requestHash: 'hash' },
      { uuid: first, requestHash: 'hash' },
    ]);
    t.same(await statusesOf(db, [first, second]), ['queued', 'gone']);
  });

  check('a release of the last ticket and a create: the deleted queue takes no new ticket with it', async (t) => {
    const queue = newQueue();
    const [last = ''] = await addSome(db, queue, 1);
    const [second, third] = [randomUUID(), randomUUID()];
    await runBehindLock<[unknown, unknown]>(url, releaseSql(last), [creating(queue, second), creating(queue, third)]);
    t.same((await statusesOf(db, [second, third])).toSorted(), ['active', 'queued']);
  });

  check('create, then the last ticket is released: the new one is active', async (t) => {
    const queue = newQueue();
    const [last = ''] = await addSome(db, queue, 1);
    const next = randomUUID();
    const [released] = await runBehindLock<[TicketChange]>(url, createSql(queue, next), [
      releasing(last) as Leg<TicketChange>,
    ]);
    matchLists(t, released.moved, [
      { uuid: last, status: 'finished' },
      { uuid: next, status: 'active' },
    ]);
  });

  check('delete all then create: the new ticket is active; create then delete all: it is deleted too', async (t) => {
    const queue = newQueue();
    const old = await addSome(db, queue, 2);
    const next = randomUUID();
    const all = (await legsFor(queue, old))['delete all'];
    await runBehindLock<[unknown, unknown]>(url, lock(queue), [all, creating(queue, next)]);
    t.same(await statusesOf(db, [...old, next]), ['gone', 'gone', 'active']);
    const later = randomUUID();
    const again = (await legsFor(queue, [next]))['delete all'];
    await runBehindLock<[unknown, unknown]>(url, lock(queue), [creating(queue, later), again]);
    t.same(await statusesOf(db, [next, later]), ['gone', 'gone']);
  });

  check('release and release of one ticket: the lock passes on once, whichever call reports it', async (t) => {
    const queue = newQueue();
    const [one = '', two = '', three = ''] = await addSome(db, queue, 3);
    const [first, second] = await runBehindLock<[TicketChange, TicketChange]>(url, lock(queue), [
      releasing(one) as Leg<TicketChange>,
      releasing(one) as Leg<TicketChange>,
    ]);
    matchLists(t, first.moved, [{ uuid: one }, { uuid: two, status: 'active' }]);
    t.same(second, { status: 'finished', moved: [] });
    t.same(await statusesOf(db, [one, two, three]), ['finished', 'active', 'queued']);
  });

  check('release of the active and of the next ticket, in both orders: the lock passes both', async (t) => {
    for (const isReversed of [false, true]) {
      const queue = newQueue();
      const [one = '', two = '', three = ''] = await addSome(db, queue, 3);
      const legs = [releasing(one), releasing(two)];
      if (isReversed) legs.reverse();
      await runBehindLock<unknown[]>(url, lock(queue), legs);
      t.same(await statusesOf(db, [one, two, three]), ['finished', 'finished', 'active']);
    }
  });

  check('delete and release of one ticket: the lock passes on once', async (t) => {
    for (const isReversed of [false, true]) {
      const queue = newQueue();
      const [one = '', two = '', three = ''] = await addSome(db, queue, 3);
      const legs: Leg<unknown>[] = [deleting(one), releasing(one)];
      if (isReversed) legs.reverse();
      await runBehindLock<unknown[]>(url, lock(queue), legs);
      t.same(await statusesOf(db, [one, two, three]), ['gone', 'active', 'queued']);
    }
  });

  check('a ticket that is renewed just before it expires stays active', async (t) => {
    while ((await expireTickets(db, 100)).length > 0);
    const queue = newQueue();
    const [one = '', two = ''] = await addSome(db, queue, 2);
    await backdate(db, one);
    const renewed = `${lock(queue)};
      update cnapi_waitlist_tickets set expires_at = cnapi_now() + interval '1 hour' where uuid = '${one}'`;
    t.same(await runBehindLock<[unknown]>(url, renewed, [expiring]), [[]]);
    t.same(await statusesOf(db, [one, two]), ['active', 'queued']);
  });

  check('a renewal of an expired ticket, or of one whose time ended during the wait, is refused', async (t) => {
    const queue = newQueue();
    const [one = '', two = ''] = await addSome(db, queue, 2);
    await backdate(db, one);
    t.same(
      await runBehindLock<[unknown]>(url, lock(queue), [expiring]),
      [[]],
      'a locked queue is left for the next time',
    );
    await expiring.run();
    t.same(await renewing(one).run(), { status: 'expired', moved: [] });
    await db.query(
      `update cnapi_waitlist_tickets set expires_at = cnapi_now() + interval '1 second' where uuid = '${two}'`,
    );
    const passing = leg('time', () => new Promise((resolve) => setTimeout(resolve, 1_100)));
    const [late] = await runBehindLock<[unknown, unknown]>(url, lock(queue), [renewing(two), passing]);
    matchLists(t, late, { status: 'expired', moved: [{ uuid: two, status: 'expired' }] });
  });

  check('a queue that another repair fixed meanwhile is not repaired again', async (t) => {
    const queue = newQueue();
    const [one = '', two = ''] = await addSome(db, queue, 2);
    await db.query('delete from cnapi_waitlist_tickets where uuid = $1::uuid', [one]);
    const repairAfterLock = `${lock(queue)};
      update cnapi_waitlist_tickets set status = 'active', active_at = cnapi_now() where uuid = '${two}'`;
    t.same(await runBehindLock<[unknown]>(url, repairAfterLock, [repairing]), [{ queues: [], moved: [] }]);
  });

  check('statements over many queues lock them in one order and do not deadlock', async (t) => {
    const serverUuid = randomUUID();
    const queues = Array.from({ length: 20 }, () => newQueue({ serverUuid }));
    const uuids: string[] = [];
    for (const queue of queues.toReversed()) uuids.push(await addOne(db, queue), await addOne(db, queue));
    await backdate(db, ...uuids.filter((_, n) => n % 3 !== 0));
    const last = await readLastQueue(db);
    const all = leg('delete all', () => deleteQueues(db, serverUuid, { last, maxQueues: 10 }));
    const locked = queues[10] ?? newQueue();
    await runBehindLock<unknown[]>(url, lock(locked), [expiring, all, expiring, repairing, all, all]);
    t.same(new Set(await statusesOf(db, uuids)), new Set(['gone', 'expired']));
  });
});
