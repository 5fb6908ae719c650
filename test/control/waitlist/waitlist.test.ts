/** Two instances over one real database: each answers for any ticket, promptly with any bus. */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import { toCreatedTicket, toQueue } from '../../../lib/control/waitlist/routes/ticket-view.ts';
import type { ExpiryRequest, TicketRequest } from '../../../lib/control/waitlist/ticket.ts';
import {
  InvalidTicketError,
  TicketEndedError,
  TicketKeyConflictError,
  TicketNotFoundError,
} from '../../../lib/control/waitlist/ticket-errors.ts';
import type { Waitlist, WaitlistConfig } from '../../../lib/control/waitlist/waitlist.ts';
import { createBus } from '../../../lib/platform/bus/create-bus.ts';
import { DatabaseUnavailableError } from '../../../lib/platform/errors.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import type { Database } from '../../../lib/platform/postgres/database.ts';
import { migrate } from '../../../lib/platform/postgres/migrations.ts';
import { TooManyWaitersError, WaitStoppedError } from '../../../lib/platform/waits/wait-errors.ts';
import { matchLists } from '../../support/match-lists.ts';
import { MemoryHub } from '../../support/memory-bus.ts';
import { freshDatabase, openDatabase, startTestPostgres } from '../../support/postgres.ts';
import { noRedis, sharedRedisUrl } from '../../support/redis.ts';
import { until } from '../../support/until.ts';
import { memoryBus, ports, startWaitlist } from './support/instances.ts';
import { backdate, complaints, migrations, newQueue } from './support/waitlist-database.ts';

const never: ExpiryRequest = { expiresAt: '3000' };
const patience = { timeoutMs: 30_000 };

const request = (fields: Partial<TicketRequest> = {}): TicketRequest => ({ ...newQueue(), expiry: never, ...fields });

/** Tickets of one queue, the first of them active. */
async function queueOf(waitlist: Waitlist, count: number, fields: Partial<TicketRequest> = {}): Promise<string[]> {
  const mine = request(fields);
  const uuids: string[] = [];
  for (let n = 0; n < count; n++) uuids.push((await waitlist.create(mine)).uuid);
  return uuids;
}

/** The database, and the tickets whose state was read through it. */
function watching(database: Database): { database: Database; seen: Set<string> } {
  const seen = new Set<string>();
  const query = async (text: string, values?: readonly unknown[]) => {
    const result = await database.query(text, values);
    const [uuids] = values ?? [];
    if (Array.isArray(uuids)) for (const uuid of uuids) seen.add(uuid);
    return result;
  };
  return { database: Object.create(database, { query: { value: query } }), seen };
}

/** Two instances that receive each other's messages through a hub in memory. */
async function twoInstances(t: Test, config: Partial<WaitlistConfig> = {}, maxWaiters?: number) {
  const { database, url } = await freshDatabase(t, { migrations });
  const hub = new MemoryHub();
  const options = { database, config, ...(maxWaiters === undefined ? {} : { maxWaiters }) };
  const a = await startWaitlist(t, { ...options, bus: memoryBus(hub) });
  const { database: watched, seen } = watching(database);
  const b = await startWaitlist(t, { ...options, database: watched, bus: memoryBus(hub) });
  /** Waits until the waits for these tickets have read their state. */
  const seenBy = (...uuids: string[]) =>
    until(() => uuids.every((uuid) => seen.has(uuid)), 'the first read of the waits');
  return { a, b, hub, database, url, seenBy };
}

for (const kind of ['postgres', 'redis'] as const) {
  t.test(
    `a release on one instance ends a wait on another, over ${kind}`,
    { skip: kind === 'redis' && noRedis },
    async (t) => {
      const { database, url, open } = await freshDatabase(t, { migrations });
      const redisUrl = kind === 'redis' ? await sharedRedisUrl() : undefined;
      const bus = () => createBus({ redisUrl, databaseUrl: url, ...ports });
      const a = await startWaitlist(t, { database, bus: bus() });
      const b = await startWaitlist(t, { database: open(), bus: bus() });
      const [one = '', two = '', three = ''] = await queueOf(a, 3);
      t.same(await b.wait(one, patience), { outcome: 'active', atOnce: true });
      const waiting = b.wait(two, patience);
      const other = b.wait(three, patience);
      await until(() => b.stats().waits === 2, 'the waits');
      await a.release(one);
      t.match(await waiting, { outcome: 'active' });
      t.equal(b.stats().waits, 1, 'the other wait continues');
      await a.release(two);
      t.match(await other, { outcome: 'active' });
      t.match(await b.get(one), { status: 'finished' });
      t.same(await complaints(database), []);
    },
  );
}

t.test("a ticket is returned as Triton's CNAPI does, with its queue", async (t) => {
  const { a, b } = await twoInstances(t);
  const mine = request({ serverUuid: 'default', action: 'provision', extra: { owner: 'me' }, reqId: 'r1' });
  const first = await a.create(mine);
  const [ticket] = toCreatedTicket(first).queue;
  t.same(Object.keys(ticket ?? {}), [
    'uuid',
    'server_uuid',
    'scope',
    'id',
    'action',
    'extra',
    'expires_at',
    'created_at',
    'updated_at',
    'status',
    'reqid',
  ]);
  t.match(ticket, { uuid: first.uuid, server_uuid: 'default', scope: 'vm', id: mine.id, action: 'provision' });
  t.match(ticket, { extra: { owner: 'me' }, expires_at: '3000', status: 'active', reqid: 'r1' });
  t.equal(new Date(ticket?.created_at ?? '').toISOString(), ticket?.created_at);
  const second = await b.create({ ...mine, action: undefined, reqId: undefined, expiry: { expiresInSeconds: 60 } });
  t.same(
    second.queue.map(({ uuid, status }) => [uuid, status]),
    [
      [first.uuid, 'active'],
      [second.uuid, 'queued'],
    ],
  );
  const own = toCreatedTicket(second).queue[1];
  t.same([own && 'action' in own, own && 'reqid' in own], [false, false], 'absent where there is none');
  t.ok(Date.parse(own?.expires_at ?? '') > Date.parse(own?.created_at ?? '') + 59_000);
  t.same(await a.get(second.uuid), second.queue[1]);
  t.same(await b.list('default', { limit: 10, offset: 0 }), second.queue);
  matchLists(t, (await a.queues({ limit: 10, offset: 0 })).map(toQueue), [
    { server_uuid: 'default', scope: 'vm', id: mine.id, depth: 1, holder: { uuid: first.uuid, action: 'provision' } },
  ]);
});

t.test('a request repeated with its key returns its ticket in its current state, on any instance', async (t) => {
  const { a, b } = await twoInstances(t);
  const mine = request({ idempotencyKey: 'key' });
  const { idempotencyKey: _none, ...other } = mine;
  const holder = await a.create(other);
  const first = await a.create(mine);
  matchLists(t, first.queue, [
    { uuid: holder.uuid, status: 'active' },
    { uuid: first.uuid, status: 'queued' },
  ]);
  t.same(await b.create(mine), first);
  t.not((await a.create({ ...mine, serverUuid: randomUUID() })).uuid, first.uuid, 'a key belongs to its server');
  await t.rejects(b.create({ ...mine, action: 'another' }), TicketKeyConflictError);
  await a.release(holder.uuid);
  matchLists(t, (await b.create(mine)).queue, [{ uuid: first.uuid, status: 'active' }]);
  await a.release(first.uuid);
  matchLists(t, await b.create(mine), { uuid: first.uuid, queue: [{ uuid: first.uuid, status: 'finished' }] });
  await b.delete(first.uuid);
  t.not((await a.create(mine)).uuid, first.uuid, 'the key is deleted with its ticket');
});

t.test('a wait ends with any end of its ticket, and reports which', async (t) => {
  const { a, b, database, seenBy } = await twoInstances(t);
  const [, finished = '', deleted = '', expired = '', forced = ''] = await queueOf(a, 5, { serverUuid: 'default' });
  const waits = [finished, deleted, expired, forced].map((uuid) => b.wait(uuid, patience));
  await seenBy(finished, deleted, expired, forced);
  await a.release(finished);
  await a.delete(deleted);
  await backdate(database, expired);
  t.same(await waits[0], { outcome: 'finished', atOnce: false });
  t.same(await waits[1], { outcome: 'deleted', atOnce: false });
  t.same(await waits[2], { outcome: 'expired', atOnce: false });
  await a.deleteAll('default');
  t.same(await waits[3], { outcome: 'deleted', atOnce: false });
  const [one = '', two = ''] = await queueOf(a, 2);
  await a.release(one);
  await backdate(database, two);
  await until(() => a.stats().expired + b.stats().expired === 2, 'the expiry');
  t.same(await b.wait(one, patience), { outcome: 'finished', atOnce: true });
  t.same(await b.wait(two), { outcome: 'expired', atOnce: true });
  await t.rejects(b.wait(randomUUID(), patience), TicketNotFoundError);
  t.equal(b.stats().waits, 0);
});

t.test('a wait past its timeout or on a leaving instance ends and says so', async (t) => {
  const { b } = await twoInstances(t);
  const [one = '', two = ''] = await queueOf(b, 2);
  t.match(await b.wait(two, { timeoutMs: 30 }), { outcome: 'timeout' });
  t.match(await b.wait(two, { timeoutMs: 0 }), { outcome: 'timeout' });
  t.match(await b.wait(one, { timeoutMs: 0 }), { outcome: 'active' }, 'a wait for an ended ticket is answered at once');
  await t.rejects(b.wait(randomUUID(), { timeoutMs: 0 }), TicketNotFoundError);
  const leaving = new AbortController();
  const over = b.wait(two, { endSignal: leaving.signal });
  const caller = new AbortController();
  const gone = b.wait(two, { signal: caller.signal });
  const stopped = b.wait(two);
  await until(() => b.stats().waits === 3, 'the waits');
  leaving.abort();
  t.match(await over, { outcome: 'timeout' });
  caller.abort(new Error('the caller went away'));
  await t.rejects(gone, /went away/);
  stopped.catch(() => {});
  await b.stop();
  await t.rejects(stopped, WaitStoppedError);
  await t.rejects(b.wait(two), WaitStoppedError);
  t.equal(b.stats().waits, 0);
});

t.test('the number of waits is limited', async (t) => {
  const { b } = await twoInstances(t, {}, 2);
  const [, two = '', three = ''] = await queueOf(b, 3);
  const held = [b.wait(two, { timeoutMs: 200 }), b.wait(three, { timeoutMs: 200 })];
  await t.rejects(b.wait(two, patience), TooManyWaitersError);
  await Promise.all(held);
  t.match(await b.wait(two, { timeoutMs: 1 }), { outcome: 'timeout' }, 'ended waits free their places');
});

t.test('a request that cannot be stored is refused by name', async (t) => {
  const { a } = await twoInstances(t);
  const refused = async (fields: Partial<TicketRequest>, field: string) =>
    t.rejects(a.create(request(fields)), { name: InvalidTicketError.name, statusCode: 400, errors: [{ field }] });
  await refused({ scope: '' }, 'scope');
  await refused({ id: 'a\0b' }, 'id');
  await refused({ id: 'x'.repeat(2_000) }, 'id');
  await refused({ action: '\ud800' }, 'action');
  await refused({ extra: { text: 'x'.repeat(70_000) } }, 'extra');
  await refused({ expiry: { expiresAt: 'tomorrow' } }, 'expires_at');
  await refused({ expiry: { expiresInSeconds: -1 } }, 'expires_in');
  const [one = ''] = await queueOf(a, 1, { id: 'ü'.repeat(500), scope: '🙂'.repeat(64) });
  await t.rejects(a.renew(one, { expiresAt: '10000-01-01' }), InvalidTicketError);
});

t.test('any caller can release or renew a ticket until it has ended', async (t) => {
  const { a, b, database } = await twoInstances(t);
  const [one = '', two = ''] = await queueOf(a, 2);
  t.match(await b.renew(one, { expiresAt: '2999-12-31T12:00:00Z' }), {
    uuid: one,
    status: 'active',
    expires_at: '2999-12-31T12:00:00Z',
  });
  await b.release(one);
  await b.release(one);
  await t.rejects(b.renew(one, never), { name: TicketEndedError.name, code: 'TicketEnded', statusCode: 409 });
  const next = a.wait(two, patience);
  await backdate(database, two);
  await t.rejects(b.renew(two, never), TicketEndedError);
  await next;
  t.match(await a.get(two), { status: 'expired' });
  const nobody = randomUUID();
  await t.rejects(a.get(nobody), TicketNotFoundError);
  await t.rejects(a.release(nobody), TicketNotFoundError);
  await t.rejects(a.delete(nobody), TicketNotFoundError);
  await t.rejects(a.renew(nobody, never), TicketNotFoundError);
});

t.test('tickets expire by themselves, waiting ones too, and the next one is told', async (t) => {
  const { a, b } = await twoInstances(t);
  const mine = request();
  const one = (await a.create({ ...mine, expiry: { expiresAt: '2001-01-01' } })).uuid;
  const two = (await a.create({ ...mine, expiry: { expiresInSeconds: 0.001 } })).uuid;
  const three = (await a.create(mine)).uuid;
  t.match(await b.wait(three, patience), { outcome: 'active' });
  t.match(await b.wait(one, patience), { outcome: 'expired', atOnce: true });
  t.match(await b.wait(two, patience), { outcome: 'expired', atOnce: true });
  t.equal(a.stats().expired + b.stats().expired, 2);
});

t.test('with the bus gone every wait still ends, by the slow poll', async (t) => {
  const { a, b, hub } = await twoInstances(t, { slowPollNoBusMs: 50 });
  const [one = '', two = '', three = ''] = await queueOf(a, 3);
  const [first, second] = [b.wait(two, patience), b.wait(three, patience)];
  hub.kill();
  await a.release(one);
  t.match(await first, { outcome: 'active' });
  await a.delete(three);
  t.match(await second, { outcome: 'deleted' });
});

t.test('changes during a loss of the bus are found as soon as it is back', async (t) => {
  const { a, b, hub } = await twoInstances(t);
  const [one = '', two = ''] = await queueOf(a, 2);
  const waiting = b.wait(two, patience);
  await until(() => b.stats().waits === 1, 'the wait');
  hub.kill();
  await a.release(one);
  hub.restore();
  t.match(await waiting, { outcome: 'active' });
});

t.test('a wait survives an outage of the database, or says that its time ended meanwhile', async (t) => {
  const server = await startTestPostgres({ fast: false });
  t.teardown(() => server.close());
  const database = openDatabase(server.url, { connectTimeoutMs: 500 });
  t.teardown(() => database.stop());
  await migrate(database, migrations, { log: silentLogger });
  const hub = new MemoryHub();
  const [a, b] = [
    await startWaitlist(t, { database, bus: memoryBus(hub) }),
    await startWaitlist(t, { database, bus: memoryBus(hub) }),
  ];
  const [one = '', two = ''] = await queueOf(a, 2);
  const waiting = b.wait(two, patience);
  await server.stop();
  await t.rejects(b.wait(two, { timeoutMs: 50 }), DatabaseUnavailableError);
  await t.rejects(a.release(one), DatabaseUnavailableError);
  await server.start();
  const released = () =>
    a.release(one).then(
      () => true,
      () => false,
    );
  await until(released, 'the ticket to be released');
  t.match(await waiting, { outcome: 'active' });
});

t.test('a queue without an active ticket continues within a slow poll, and is counted', async (t) => {
  const { a, b, database } = await twoInstances(t, { slowPollMs: 50 });
  const [one = '', two = ''] = await queueOf(a, 2);
  const waiting = b.wait(two, patience);
  await database.query('delete from cnapi_waitlist_tickets where uuid = $1::uuid', [one]);
  t.match(await waiting, { outcome: 'active' });
  await until(() => a.stats().defects + b.stats().defects === 1, 'the count');
});

t.test('1,100 tickets in one queue become active once each, in order, and each wakes only its own wait', async (t) => {
  const { a, b, database } = await twoInstances(t);
  const mine = request();
  const uuids: string[] = [];
  for (let n = 0; n < 1_100; n++) {
    const { uuid, queue } = await a.create(mine);
    uuids.push(uuid);
    if (n === 1_099) t.same([queue.length, queue.at(-1)?.uuid], [1_002, uuid], 'the first 1,000 and the new one');
  }
  const order: string[] = [];
  await Promise.all(
    uuids.map(async (uuid) => {
      t.equal((await b.wait(uuid)).outcome, 'active');
      order.push(uuid);
      await a.release(uuid);
    }),
  );
  t.same(order, uuids);
  t.same(await complaints(database), []);
});
