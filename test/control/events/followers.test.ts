/**
 * Slow followers, and changes that are committed out of order, on one instance's `Events` over a
 * real database.
 */
import { randomUUID } from 'node:crypto';
import { getEventListeners } from 'node:events';
import t from 'tap';
import { formatPosition, parsePosition, positionOf } from '../../../lib/control/events/event.ts';
import { TooManyFollowersError } from '../../../lib/control/events/event-errors.ts';
import {
  deleteOldEvents,
  deleteSurplusEvents,
  numberEvents,
  readEventPage,
  readPositionAt,
} from '../../../lib/control/events/event-store.ts';
import { type DeliveredEvent, Events, type EventsDeps } from '../../../lib/control/events/events.ts';
import { LogReader, WINDOW_EVENTS } from '../../../lib/control/events/log-reader.ts';
import { insertRun } from '../../../lib/control/roster/membership/instance-store.ts';
import { migrations } from '../../../lib/control/subsystem-list.ts';
import { silentLogger as log } from '../../../lib/platform/log.ts';
import type { Database, Queryable } from '../../../lib/platform/postgres/database.ts';
import { systemRandom as random } from '../../../lib/platform/random.ts';
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import { createMemoryBus, MemoryHub } from '../../support/memory-bus.ts';
import { freshDatabase, type Teardown } from '../../support/postgres.ts';
import { until } from '../../support/until.ts';
import { fillOutbox } from './support/full-outbox.ts';

/** More than an instance keeps in memory. */
const MANY = 6_000;

async function startEvents(t: Teardown, options: Partial<EventsDeps> = {}) {
  const { database } = await freshDatabase(t, { migrations });
  const bus = createMemoryBus({ hub: new MemoryHub(), clock, random, log });
  const config = { slowPollMs: 100, slowPollNoBusMs: 100 };
  const events = new Events({ database, bus, clock, log, config, ...options });
  await events.start();
  t.teardown(() => events.stop());
  return { database, events };
}

function addTasks(database: Queryable, count: number, server = randomUUID()): Promise<unknown> {
  return database.query(
    `insert into cnapi_tasks (id, server_uuid, name, params, timeout_ms, idempotent, request_hash, created_at, queued_at)
     select gen_random_uuid(), $1::uuid, 'nop', '{}', 1, true, 'x', cnapi_now(), cnapi_now() from generate_series(1, $2::int)`,
    [server, count],
  );
}

async function take(iterator: AsyncIterator<DeliveredEvent>, count: number): Promise<DeliveredEvent[]> {
  const taken: DeliveredEvent[] = [];
  while (taken.length < count) {
    const { value, done } = await iterator.next();
    if (done === true) break;
    if (value.event !== undefined) taken.push(value);
  }
  return taken;
}

const idsOf = (told: readonly DeliveredEvent[]) => told.map(({ event }) => event?.id);
const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, index) => from + index);

t.test('a slow follower receives every event although nothing is kept for it', async (t) => {
  const { database, events } = await startEvents(t);
  const quick = (await events.follow({}, undefined))[Symbol.asyncIterator]();
  const slow = (await events.follow({}, undefined))[Symbol.asyncIterator]();
  await addTasks(database, 1);
  t.same(idsOf(await take(slow, 1)), [1]);
  await addTasks(database, MANY);
  t.same(idsOf(await take(quick, MANY + 1)), range(1, MANY + 1));
  t.same(idsOf(await take(slow, MANY)), range(2, MANY + 1));
  await quick.return?.();
  await slow.return?.();
});

t.test('a follower takes a bounded number of events from the window at once', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const number = async () => (await numberEvents(database, 5_000)).last;
  const reader = new LogReader({ database, clock, log, number, onSetBack: () => t.fail('nothing was set back') });
  t.teardown(() => reader.stop());
  await addTasks(database, 1);
  await number();
  const stopListening = reader.listen(() => undefined);
  t.teardown(stopListening);
  const from = { id: 1, storedAtMs: 0 };
  await until(() => reader.since(from, 1) !== undefined, 'the first event');
  await addTasks(database, WINDOW_EVENTS - 1);
  await until(() => reader.isPast(WINDOW_EVENTS - 1), 'all events');
  const news = reader.since(from, 100);
  t.match(news, { events: { length: 100 }, isEnd: false });
  t.match(reader.since({ id: WINDOW_EVENTS - 10, storedAtMs: 0 }, 100), { events: { length: 10 }, isEnd: true });
});

t.test('a follower whose filter passes few events is sent its position now and then', async (t) => {
  const { database, events } = await startEvents(t);
  const mine = randomUUID();
  const follower = (await events.follow({ serverUuid: mine }, undefined))[Symbol.asyncIterator]();
  t.equal((await follower.next()).value?.position, '0', 'it begins with its position');
  const next = follower.next();
  await addTasks(database, MANY);
  const { position, event } = (await next).value as DeliveredEvent;
  t.equal(event, undefined);
  t.ok(Number(position.split('-')[0]) >= 1_000, position);
  await addTasks(database, 1, mine);
  t.same(idsOf(await take(follower, 1)), [MANY + 1]);
  await follower.return?.();
  const resumed = (await events.follow({ serverUuid: mine }, position))[Symbol.asyncIterator]();
  t.same(idsOf(await take(resumed, 1)), [MANY + 1]);
  await resumed.return?.();
});

t.test('a follower that the log has overtaken is told so, and continues', async (t) => {
  const { database, events } = await startEvents(t, { keep: 100 });
  const slow = (await events.follow({}, undefined))[Symbol.asyncIterator]();
  await addTasks(database, 1);
  await take(slow, 1);
  await addTasks(database, MANY);
  const log = async () =>
    (await database.query<{ n: number; last: number }>('select count(*) as n, max(id) as last from cnapi_events'))
      .rows[0];
  // The log is also trimmed before all events are in it.
  await until(async () => {
    const { n, last } = (await log()) ?? {};
    return n === 100 && last === MANY + 1;
  }, 'the log to be trimmed');
  const told: DeliveredEvent[] = [];
  while (told.at(-1)?.event?.id !== MANY + 1) told.push(...(await take(slow, 1)));
  const gap = told.findIndex(({ event }) => event?.kind === 'gap');
  // While the instance lags behind the log, some of them are still in its window.
  t.same(idsOf(told.slice(0, gap)), range(2, gap + 1));
  t.match(told[gap]?.event, { kind: 'gap', id: MANY - 99, body: { message: /not kept any more/ } });
  t.same(idsOf(told.slice(gap + 1)), range(MANY - 98, MANY + 1));
  t.equal(events.stats().gaps, 1);
  await slow.return?.();
});

t.test('a change that is committed after a later one is sent after it, not skipped', async (t) => {
  const { database, events } = await startEvents(t);
  const follower = (await events.follow({}, undefined))[Symbol.asyncIterator]();
  const [early, late] = [randomUUID(), randomUUID()];
  await database.transaction(async (connection) => {
    await addTasks(connection, 1, early);
    await addTasks(database, 1, late);
    t.equal((await take(follower, 1))[0]?.event?.serverUuid, late);
  });
  t.equal((await take(follower, 1))[0]?.event?.serverUuid, early);
  await follower.return?.();
});

t.test('the number of followers is limited, and they end when their instance leaves', async (t) => {
  const { database, events } = await startEvents(t, { maxFollowers: 1 });
  const follower = (await events.follow({}, undefined))[Symbol.asyncIterator]();
  await follower.next();
  t.equal(events.stats().followers, 1);
  await t.rejects(events.follow({}, undefined), TooManyFollowersError);
  const abort = new AbortController();
  await follower.return?.();
  const left = new AbortController();
  const both = await Promise.allSettled([1, 2].map(() => events.follow({}, undefined, left.signal)));
  t.same(
    both.map(({ status }) => status).sort(),
    ['fulfilled', 'rejected'],
    'followers that connect at once are counted too',
  );
  left.abort();
  t.equal(events.stats().followers, 0);
  const again = (await events.follow({}, undefined, abort.signal))[Symbol.asyncIterator]();
  await again.next();
  const ended = again.next();
  abort.abort();
  t.same(await ended, { value: undefined, done: true }, 'its caller left');
  const last = (await events.follow({}, undefined))[Symbol.asyncIterator]();
  await addTasks(database, 1);
  await take(last, 1);
  const over = last.next();
  events.releaseFollowers();
  t.same(await over, { value: undefined, done: true }, 'the instance leaves');
  await t.rejects(events.follow({}, undefined), { code: 'InstanceDraining', statusCode: 503 });
});

t.test('a follower that has ended leaves no listener on the signal of its caller', async (t) => {
  const { events } = await startEvents(t);
  const { signal } = new AbortController();
  const follower = (await events.follow({}, undefined, signal))[Symbol.asyncIterator]();
  await follower.next();
  t.ok(getEventListeners(signal, 'abort').length > 0);
  await follower.return?.();
  t.same(getEventListeners(signal, 'abort'), []);
});

t.test('a new follower is told if its first position is older than a reset of the log', async (t) => {
  const { database, events } = await startEvents(t);
  await addTasks(database, 1);
  const follower = (await events.follow({}, undefined))[Symbol.asyncIterator]();
  const { position } = (await follower.next()).value as DeliveredEvent;
  await follower.return?.();
  t.ok(parsePosition(position)?.storedAtMs, position);
  await database.query(`update cnapi_events set stored_at = stored_at - interval '1 second'`);
  await t.rejects(events.follow({}, position), { code: 'InvalidArgument', statusCode: 409 });
});

/**
 * Changes the log like the promotion of a late standby: the last events are gone, and others get
 * their numbers.
 */
async function setBack(database: Database, to: number, regrown: number): Promise<void> {
  await numberEvents(database, 5_000);
  await database.query('delete from cnapi_events where id > $1::bigint', [to]);
  await database.query(
    'update cnapi_event_numberings set last_id = $1::bigint where id = (select max(id) from cnapi_event_numberings)',
    [to],
  );
  await addTasks(database, regrown);
  await numberEvents(database, 5_000);
}

t.test('a follower ahead of its instance when the log was set back is sent nothing that skips a loss', async (t) => {
  for (const hasBegun of [false, true]) {
    await t.test(hasBegun ? 'and others have read on' : 'and it is the first that reads', async (t) => {
      const { database, events } = await startEvents(t);
      await addTasks(database, 5);
      await numberEvents(database, 5_000);
      const [fifth] = await readEventPage(database, {}, { from: 5, upTo: 5, limit: 1 });
      const position = fifth && formatPosition(positionOf(fifth));
      const resumed = (await events.follow({}, position))[Symbol.asyncIterator]();
      const begun = (await events.follow({}, undefined))[Symbol.asyncIterator]();
      await setBack(database, 2, 0);
      const other = (await events.follow({}, undefined))[Symbol.asyncIterator]();
      if (hasBegun) await other.next();
      await setBack(database, 2, 4);
      if (hasBegun) t.same(idsOf(await take(other, 4)), [3, 4, 5, 6]);
      t.same(idsOf(await take(resumed, 1)), [], 'it continued');
      t.same(idsOf(await take(begun, 1)), [], 'it began');
      await t.rejects(events.follow({}, position), { code: 'InvalidArgument', statusCode: 409 });
      await other.return?.();
    });
  }
});

t.test('a gap is sent after everything that had waited and before later events', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const kinds = async () =>
    (await database.query<{ kind: string }>('select kind from cnapi_events order by id')).rows.map(({ kind }) => kind);
  await addTasks(database, 5);
  await fillOutbox(database);
  await addTasks(database, 3);
  t.equal((await numberEvents(database, 2)).last, 2);
  t.equal((await numberEvents(database, 2)).last, 4);
  t.same(await numberEvents(database, 2).then(({ numbered, last }) => ({ numbered, last })), { numbered: 1, last: 6 });
  await addTasks(database, 1);
  await numberEvents(database, 2);
  const told = await kinds();
  t.same(told.slice(0, 7), ['task', 'task', 'task', 'task', 'task', 'gap', 'task']);
  t.ok(
    told.slice(7).every((kind) => kind === 'gap'),
    'it is sent again once all transactions that ran then have ended',
  );
});

t.test('a renewed run is live from now on, whenever its instance started', async (t) => {
  const { database, events } = await startEvents(t);
  const follower = (await events.follow({}, undefined))[Symbol.asyncIterator]();
  const identity = {
    cnapiUuid: randomUUID(),
    url: 'http://127.0.0.1:1',
    host: '127.0.0.1',
    port: 1,
    pid: 1,
    version: '0',
  };
  const { rows } = await database.query<{ moment: Date }>('select cnapi_now() as moment');
  await insertRun(database, randomUUID(), identity, new Date('2020-01-01T00:00:00Z'));
  const [told] = await take(follower, 1);
  t.match(told?.event?.body, { state: 'live' });
  t.ok((told?.event?.storedAt.getTime() ?? 0) >= (rows[0]?.moment.getTime() ?? Number.NaN));
  await follower.return?.();
});

t.test('only the beginning of the log is deleted, so that no gap is hidden in it', async (t) => {
  const { database, events } = await startEvents(t);
  await addTasks(database, 6);
  await events.follow({}, undefined);
  await database.query(`update cnapi_events set stored_at = stored_at - interval '9 days' where id in (1, 2, 4)`);
  const ids = async () =>
    (await database.query<{ id: number }>('select id from cnapi_events order by id')).rows.map(({ id }) => id);
  t.equal(await deleteOldEvents(database, 7, 1), 1);
  t.same(await ids(), [2, 3, 4, 5, 6]);
  t.equal(await deleteOldEvents(database, 7, 100), 1);
  t.equal(await deleteOldEvents(database, 7, 100), 0);
  t.same(await ids(), [3, 4, 5, 6]);
  t.equal(await deleteOldEvents(database, 0, 100), 4, 'all events may be deleted');
});

t.test('a follower can begin with the events of the last hour', async (t) => {
  const { database, events } = await startEvents(t);
  const hours = (count: number) => count * 3_600_000;
  const placeAt = async (msAgo: number) => {
    const { id, storedAtMs } = await readPositionAt(database, msAgo);
    return [id, storedAtMs > 0];
  };
  t.same(await placeAt(hours(1)), [0, false], 'an empty log');
  await addTasks(database, 4);
  await numberEvents(database, 5_000);
  t.same(await placeAt(hours(1)), [0, false], 'no event is that old');
  await database.query(`update cnapi_events set stored_at = stored_at - interval '2 hours' where id <= 2`);
  t.same(await placeAt(hours(1)), [2, true]);
  t.same(await placeAt(0), [4, true]);
  const follower = (await events.follow({}, { sinceMs: hours(1) }))[Symbol.asyncIterator]();
  t.same(idsOf(await take(follower, 2)), [3, 4]);
  await follower.return?.();
  await deleteSurplusEvents(database, 2, 1);
  t.same(await placeAt(hours(3)), [1, false], 'the log begins later');
  await deleteSurplusEvents(database, 0, 100);
  t.same(await placeAt(hours(1)), [4, false], 'no event is kept');
});

t.test('many readers from the beginning of the log use few of the shared connections', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  let [reading, most] = [0, 0];
  const counted: Database = {
    query: async (...statement) => {
      most = Math.max(most, ++reading);
      return database.query<never>(...statement).finally(() => {
        reading -= 1;
      });
    },
    transaction: (...work) => database.transaction(...work),
    stop: async () => {},
  };
  const bus = createMemoryBus({ hub: new MemoryHub(), clock, random, log });
  const config = { slowPollMs: 60_000, slowPollNoBusMs: 60_000 };
  const events = new Events({ database: counted, bus, clock, log, config });
  await events.start();
  t.teardown(() => events.stop());
  await addTasks(database, 2_000);
  await events.follow({}, undefined);
  const crowd = await Promise.all(Array.from({ length: 40 }, () => events.follow({}, '0')));
  most = 0;
  const heard = await Promise.all(
    crowd.map(async (told) => {
      const iterator = told[Symbol.asyncIterator]();
      const count = (await take(iterator, 2_000)).length;
      await iterator.return?.();
      return count;
    }),
  );
  t.same(new Set(heard), new Set([2_000]));
  t.ok(most <= 3, `${most} statements at once, including the reader's`);
});
