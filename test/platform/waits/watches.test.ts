import { randomUUID } from 'node:crypto';
import t from 'tap';
import type { Bus, BusMessage } from '../../../lib/platform/bus/bus.ts';
import { systemClock } from '../../../lib/platform/clock.ts';
import { DatabaseUnavailableError } from '../../../lib/platform/errors.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';
import { Watches } from '../../../lib/platform/waits/watches.ts';
import { until } from '../../support/until.ts';

/** Watches over reads and a bus that the test controls. */
function setUp(t: { teardown(work: () => unknown): void }) {
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
