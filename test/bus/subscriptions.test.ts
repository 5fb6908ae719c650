import fc from 'fast-check';
import t from 'tap';
import { type Handler, Subscriptions, type TopicChange } from '../../lib/bus/subscriptions.ts';

type TestHandler = Handler<never>;
const handlerOf = (topic: string): TestHandler => ({ topic, onMessage: () => undefined, onReady: undefined });

t.test('a topic is asked for once, and its handlers are ready when it is confirmed', async (t) => {
  const subscriptions = new Subscriptions<never>();
  const [first, second] = [handlerOf('a'), handlerOf('a')];
  t.equal(subscriptions.add(first), false);
  t.equal(subscriptions.add(second), false);
  const change = take(subscriptions);
  t.same(change, { hear: ['a'], unhear: [] });
  t.equal(subscriptions.takeChange(10), undefined);
  t.same(subscriptions.confirm(change), [first, second]);
  t.equal(subscriptions.add(handlerOf('a')), true, 'a standing topic is ready at once');
});

t.test('a topic left before it was asked for is never asked for', async (t) => {
  const subscriptions = new Subscriptions<never>();
  const handler = handlerOf('a');
  subscriptions.add(handler);
  subscriptions.remove(handler);
  subscriptions.remove(handler);
  t.equal(subscriptions.takeChange(10), undefined);
});

t.test('a topic left while being asked for is unheard once it stands', async (t) => {
  const subscriptions = new Subscriptions<never>();
  const handler = handlerOf('a');
  subscriptions.add(handler);
  const change = take(subscriptions);
  subscriptions.remove(handler);
  t.same(subscriptions.confirm(change), []);
  t.same(subscriptions.takeChange(10), { hear: [], unhear: ['a'] });
});

t.test('who subscribes while the topic is being unheard waits for a confirmation of their own', async (t) => {
  const subscriptions = new Subscriptions<never>();
  const handler = handlerOf('a');
  subscriptions.add(handler);
  subscriptions.confirm(take(subscriptions));
  subscriptions.remove(handler);
  const leaving = take(subscriptions);
  const late = handlerOf('a');
  t.equal(subscriptions.add(late), false);
  t.same(subscriptions.confirm(leaving), []);
  t.same(subscriptions.confirm(take(subscriptions)), [late]);
});

t.test(
  'after a loss everything that is still wanted is asked for again, in parts no larger than the limit',
  async (t) => {
    const subscriptions = new Subscriptions<never>();
    const leaving = handlerOf('c');
    for (const handler of [handlerOf('a'), handlerOf('b'), leaving]) subscriptions.add(handler);
    subscriptions.confirm(take(subscriptions));
    subscriptions.remove(leaving);
    subscriptions.lost();
    t.same(subscriptions.takeChange(1), { hear: ['a'], unhear: [] });
    t.same(subscriptions.takeChange(1), { hear: ['b'], unhear: [] });
    t.equal(subscriptions.takeChange(1), undefined);
  },
);

t.test(
  'whatever the order of events, the server ends up hearing what is wanted and every handler was ready',
  async () => {
    const step = fc.record({
      kind: fc.constantFrom('add', 'remove', 'take', 'confirm', 'lost'),
      topic: fc.constantFrom('a', 'b', 'c'),
    });
    fc.assert(fc.property(fc.array(step, { maxLength: 60 }), (steps) => runAgainstModel(steps)));
  },
);

/** A server, one change in flight at a time, beside the Subscriptions; true when they agree in the end. */
function runAgainstModel(steps: { kind: string; topic: string }[]): boolean {
  const subscriptions = new Subscriptions<never>();
  const server = new Set<string>();
  const handlers: TestHandler[] = [];
  const ready = new Set<TestHandler>();
  let inFlight: TopicChange | undefined;
  const begin = () => {
    inFlight ??= subscriptions.takeChange(2);
  };
  const finish = () => {
    if (!inFlight) return;
    for (const topic of inFlight.unhear) server.delete(topic);
    for (const topic of inFlight.hear) server.add(topic);
    for (const handler of subscriptions.confirm(inFlight)) ready.add(handler);
    inFlight = undefined;
  };
  for (const { kind, topic } of steps) {
    if (kind === 'add') {
      const handler = handlerOf(topic);
      handlers.push(handler);
      if (subscriptions.add(handler)) {
        if (!server.has(topic)) return false;
        ready.add(handler);
      }
    }
    if (kind === 'remove') {
      const index = handlers.findIndex((handler) => handler.topic === topic);
      for (const handler of index < 0 ? [] : handlers.splice(index, 1)) subscriptions.remove(handler);
    }
    if (kind === 'take') begin();
    if (kind === 'confirm') finish();
    if (kind === 'lost') {
      inFlight = undefined;
      server.clear();
      ready.clear();
      subscriptions.lost();
    }
  }
  do {
    finish();
    begin();
  } while (inFlight);
  const wanted = new Set(handlers.map(({ topic }) => topic));
  return [...wanted].sort().join() === [...server].sort().join() && handlers.every((handler) => ready.has(handler));
}

function take(subscriptions: Subscriptions<never>): TopicChange {
  const change = subscriptions.takeChange(10);
  if (!change) throw new Error('there should have been a change');
  return change;
}
