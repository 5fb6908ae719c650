import { randomUUID } from 'node:crypto';
import t from 'tap';
import type { Bus, BusMessage } from '../../../lib/platform/bus/bus.ts';
import { DatabaseUnavailableError } from '../../../lib/platform/errors.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';
import { Watch, Watches } from '../../../lib/platform/waits/watches.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { until } from '../../support/until.ts';

/** Watches over reads and a bus that the test controls. */
function setUp(t: { teardown(work: () => unknown): void }, maxWatches?: number) {
  const ended = new Set<string>();
  const reads: string[][] = [];
  const subscriptions: { topic: string; receive: (message: BusMessage) => void; ready: () => void }[] = [];
  const state = { isAway: false, answers: Promise.resolve(), answered: 0 };
  const read = async (_database: Queryable, ids: readonly string[]) => {
    reads.push([...ids]);
    await new Promise((resolve) => setImmediate(resolve));
    if (state.isAway) throw new DatabaseUnavailableError();
    const found = ids.map((id) => [id, { stage: ended.has(id) ? 1 : 0 }] as const);
    await state.answers;
    state.answered += 1;
    return found;
  };
  const bus = {
    subscribe(topic: string, receive: (message: BusMessage) => void, ready: () => void) {
      const subscription = { topic, receive, ready };
      subscriptions.push(subscription);
      return { close: () => subscriptions.splice(subscriptions.indexOf(subscription), 1) };
    },
  } as unknown as Bus;
  const watches = new Watches<{ stage: number }>({
    database: { query: async () => ({ rows: [], rowCount: 0 }) },
    bus,
    clock: systemClock,
    log: silentLogger,
    maxWatches,
    what: 'thing',
    topic: 'things',
    eventsTopic: (id) => `thing:${id}`,
    read,
    isBefore: (next, last) => next.stage < last.stage,
  });
  t.teardown(() => watches.stop());
  const waitFor = (id: string) => {
    const watch = watches.open(id, false);
    const reached = watch
      .until((position) => position?.stage === 1, { timeoutMs: 30_000 })
      .finally(() => watch.close());
    return reached;
  };
  const settled = (count: number) => until(() => reads.length === count, `read ${count}`);
  const answered = (count: number) => until(() => state.answered === count, `the answer to read ${count}`);
  return { watches, ended, reads, subscriptions, state, waitFor, settled, answered };
}

t.test('a wait reads after it has subscribed and whenever the subscription is confirmed again', async (t) => {
  const { ended, reads, subscriptions, waitFor, answered } = setUp(t);
  const id = randomUUID();
  const waiting = waitFor(id);
  t.equal(subscriptions.length, 1, 'it subscribed before anything was read');
  await answered(1);
  ended.add(id);
  subscriptions[0]?.ready();
  t.match(await waiting, { position: { stage: 1 } });
  t.equal(reads.length, 2);
  await waitFor(id);
  t.same(
    subscriptions.map(({ topic }) => topic),
    ['things'],
    'the subscription stays for the next wait',
  );
});

t.test('a message only causes a read, and only if it names an awaited object', async (t) => {
  const { ended, reads, subscriptions, waitFor, settled } = setUp(t);
  const id = randomUUID();
  const waiting = waitFor(id);
  await settled(1);
  for (const message of [{}, { ids: 'all' }, { ids: [7] }, { ids: [randomUUID()] }]) subscriptions[0]?.receive(message);
  t.equal(reads.length, 1);
  subscriptions[0]?.receive({ ids: [randomUUID(), id] });
  await settled(2);
  ended.add(id);
  subscriptions[0]?.receive({ ids: [id] });
  t.match(await waiting, { position: { stage: 1 } }, 'the message about another object ended nothing');
});

t.test('changes before the end are passed to followers, and do not end a wait', async (t) => {
  const { watches, reads, subscriptions, waitFor, settled } = setUp(t);
  const id = randomUUID();
  void waitFor(id).catch(() => undefined);
  await settled(1);
  watches.wake(id, false);
  t.equal(reads.length, 1);
  const follow = watches.open(id, true);
  await settled(2);
  const events = subscriptions.find(({ topic }) => topic === `thing:${id}`);
  events?.receive({ id });
  await settled(3);
  watches.wake(id, false);
  await settled(4);
  follow.close();
  t.equal(watches.count, 1);
});

t.test('a follower reads whenever the subscription of its events is confirmed again', async (t) => {
  const { watches, ended, reads, subscriptions, answered } = setUp(t);
  const id = randomUUID();
  const follow = watches.open(id, true);
  const seen = follow.until((position) => position?.stage === 1, { timeoutMs: 30_000 });
  await answered(1);
  ended.add(id);
  subscriptions.find(({ topic }) => topic === `thing:${id}`)?.ready();
  t.match(await seen, { position: { stage: 1 } });
  t.equal(reads.length, 2);
  follow.close();
});

t.test('a wait that joins during a read is answered by the next read', async (t) => {
  const { watches, ended, state, waitFor, settled } = setUp(t);
  const id = randomUUID();
  const answer = Promise.withResolvers<void>();
  state.answers = answer.promise;
  const first = waitFor(id);
  await settled(1);
  await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
  // The read has found the first stage; the object ends before the second wait joins.
  ended.add(id);
  const joiner = watches.open(id, false);
  const seen = joiner.until(() => true, { timeoutMs: 30_000 });
  answer.resolve();
  t.match(await seen, { position: { stage: 1 } });
  t.match(await first, { position: { stage: 1 } });
  joiner.close();
});

t.test('many waits share one subscription and few reads', async (t) => {
  const { watches, ended, reads, subscriptions, waitFor } = setUp(t);
  const ids = Array.from({ length: 20 }, () => randomUUID());
  const waiting = ids.flatMap((id) => [waitFor(id), waitFor(id)]);
  t.equal(subscriptions.length, 1);
  t.equal(watches.count, 40);
  await until(() => new Set(reads.flat()).size === 20, 'all to be read');
  for (const id of ids) ended.add(id);
  const before = reads.length;
  watches.poll();
  await Promise.all(waiting);
  t.ok(reads.length - before <= 3);
  t.equal(watches.count, 0);
});

t.test('waits continue while the database is away', async (t) => {
  const { ended, reads, state, waitFor } = setUp(t);
  state.isAway = true;
  const id = randomUUID();
  const waiting = waitFor(id);
  await until(() => reads.length >= 2, 'a second attempt');
  ended.add(id);
  state.isAway = false;
  t.match(await waiting, { position: { stage: 1 } });
});

t.test('a stopped watch receives nothing any more', async (t) => {
  const { watches, subscriptions, waitFor } = setUp(t);
  const waiting = waitFor(randomUUID());
  t.equal(subscriptions.length, 1);
  await Promise.all([t.rejects(waiting, { message: /stopping/ }), watches.stop()]);
  t.same(subscriptions, []);
});

t.test('the number of watches is limited, and one that closes makes room once', async (t) => {
  const { watches } = setUp(t, 2);
  const [first] = [watches.open('a', false), watches.open('a', false)];
  t.throws(() => watches.open('b', false), { code: 'TooManyWaiters', statusCode: 503 });
  first.close();
  first.close();
  t.equal(watches.count, 1);
  watches.open('b', false);
  t.throws(() => watches.open('c', false), { code: 'TooManyWaiters' });
});

t.test('events of an object are received while a follower watches it', async (t) => {
  const { watches, subscriptions } = setUp(t);
  const topics = () => subscriptions.map(({ topic }) => topic);
  watches.open('a', false);
  t.same(topics(), ['things'], 'a wait needs only the changes');
  const [first, second] = [watches.open('b', true), watches.open('b', true)];
  t.same(topics(), ['things', 'thing:b'], 'followers of one object share a subscription');
  first.close();
  t.same(topics(), ['things', 'thing:b']);
  second.close();
  t.same(topics(), ['things']);
});

t.test('an object that nobody watches is not read', async (t) => {
  const { watches, reads, settled } = setUp(t);
  const watch = watches.open('a', false);
  await settled(1);
  watches.wake('b', true);
  watch.close();
  watches.wake('a', true);
  watches.poll();
  await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
  t.same(reads, [['a']]);
});

t.test('a watch cannot be opened once this instance stops', async (t) => {
  const { watches } = setUp(t);
  await watches.stop();
  t.throws(() => watches.open('a', false), { code: 'ServiceUnavailable', message: /stopping.* thing a / });
});

/** One watch of an object that the test moves. */
function oneWatch() {
  const clock = new ManualClock();
  const watch = new Watch<{ stage: number }>({
    clock,
    id: 'a',
    wantsEvents: false,
    isBefore: (next, last) => next.stage < last.stage,
    onClose: () => {},
  });
  const reaches = (stage: number, options: Parameters<typeof watch.until>[1] = {}) =>
    watch.until((position) => position === undefined || position.stage >= stage, options);
  return { clock, watch, reaches };
}

t.test('a wait ends at its timeout with what was read last', async (t) => {
  const { clock, watch, reaches } = oneWatch();
  const first = reaches(1, { timeoutMs: 1_000 });
  await clock.advance(1_000);
  t.equal(await first, undefined, 'nothing was read');
  const second = reaches(1, { timeoutMs: 1_000 });
  watch.move({ stage: 0 });
  await clock.advance(1_000);
  t.same(await second, { position: { stage: 0 } });
  const third = reaches(1, { timeoutMs: 1_000 });
  watch.move({ stage: 1 });
  t.same(await third, { position: { stage: 1 } });
  t.same(await reaches(1), { position: { stage: 1 } }, 'a stage that was seen before is reached at once');
  t.equal(clock.timers, 0);
});

t.test('a wait of years lasts as long as it says', async (t) => {
  const { clock, watch, reaches } = oneWatch();
  const timeoutMs = 2 ** 40;
  const waiting = reaches(1, { timeoutMs });
  await clock.advance(timeoutMs - 1);
  t.equal(clock.timers, 1);
  await clock.advance(1);
  t.equal(await waiting, undefined);
  watch.close();
});

t.test(
  'a caller that leaves ends its wait with its reason, and an instance that leaves ends it as a timeout does',
  async (t) => {
    const { clock, watch, reaches } = oneWatch();
    watch.move({ stage: 0 });
    for (const isBefore of [true, false]) {
      const [caller, instance] = [new AbortController(), new AbortController()];
      if (isBefore) caller.abort(new Error('gone'));
      const first = reaches(1, { signal: caller.signal, endSignal: instance.signal, timeoutMs: 9_000 });
      if (!isBefore) caller.abort(new Error('gone'));
      await t.rejects(first, { message: 'gone' });
      if (isBefore) instance.abort();
      const second = reaches(1, { signal: new AbortController().signal, endSignal: instance.signal, timeoutMs: 9_000 });
      if (!isBefore) instance.abort();
      t.same(await second, { position: { stage: 0 } });
      t.equal(clock.timers, 0);
    }
  },
);

t.test('a signal that aborts after its wait does not end the next one', async (t) => {
  const { watch, reaches } = oneWatch();
  const [caller, instance] = [new AbortController(), new AbortController()];
  const first = reaches(1, { signal: caller.signal, endSignal: instance.signal });
  watch.move({ stage: 1 });
  await first;
  const second = reaches(2);
  caller.abort(new Error('gone'));
  instance.abort();
  watch.move({ stage: 2 });
  t.same(await second, { position: { stage: 2 } });
});

t.test('an object moves forward only, except from a position that is not valid any more', async (t) => {
  const { watch, reaches } = oneWatch();
  watch.move({ stage: 3 });
  watch.move({ stage: 1 });
  const seen = await reaches(3);
  t.same(seen, { position: { stage: 3 } }, 'an older read arrives late');
  watch.invalidate({ position: { stage: 3 } });
  t.equal(await reaches(3), seen, 'another position was invalidated');
  watch.invalidate(seen);
  const next = reaches(2);
  watch.move({ stage: 1 });
  watch.move({ stage: 2 });
  t.same(await next, { position: { stage: 2 } });
  watch.move(undefined);
  t.same(await reaches(9), { position: undefined }, 'it was deleted');
});

t.test('a watch that failed ends its wait and all later ones', async (t) => {
  const { clock, watch, reaches } = oneWatch();
  const waiting = reaches(1, { timeoutMs: 1_000 });
  watch.fail(new Error('the instance stops'));
  await t.rejects(waiting, { message: 'the instance stops' });
  await t.rejects(reaches(0), { message: 'the instance stops' });
  t.equal(clock.timers, 0);
});
