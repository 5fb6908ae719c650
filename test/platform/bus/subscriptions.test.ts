import fc from 'fast-check';
import t from 'tap';
import { Subscriptions, type TopicChange, type TopicHandler } from '../../../lib/platform/bus/subscriptions.ts';

const handlerOf = (topic: string): TopicHandler => ({ topic, onMessage: () => undefined, onReady: undefined });

t.test('a topic is subscribed to once, and its handlers are ready when it is confirmed', async (t) => {
  const subscriptions = new Subscriptions();
  const [first, second] = [handlerOf('a'), handlerOf('a')];
  t.equal(subscriptions.add(first), false);
  t.equal(subscriptions.add(second), false);
  const change = take(subscriptions);
  t.same(change, { subscribe: ['a'], unsubscribe: [] });
  t.equal(subscriptions.takeChange(10), undefined);
  t.same(subscriptions.confirm(change), [first, second]);
  t.equal(subscriptions.add(handlerOf('a')), true, 'a confirmed topic is ready at once');
});

t.test('a topic that is left before it was subscribed to is never subscribed to', async (t) => {
  const subscriptions = new Subscriptions();
  const handler = handlerOf('a');
  subscriptions.add(handler);
  subscriptions.remove(handler);
  subscriptions.remove(handler);
  t.equal(subscriptions.takeChange(10), undefined);
});

t.test('a topic that is left while being subscribed to is unsubscribed once confirmed', async (t) => {
  const subscriptions = new Subscriptions();
  const handler = handlerOf('a');
  subscriptions.add(handler);
  const change = take(subscriptions);
  subscriptions.remove(handler);
  t.same(subscriptions.confirm(change), []);
  t.same(subscriptions.takeChange(10), { subscribe: [], unsubscribe: ['a'] });
});

t.test('a handler added while its topic is being unsubscribed waits for a new confirmation', async (t) => {
  const subscriptions = new Subscriptions();
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

t.test('after a lost connection, wanted topics are subscribed again in parts of bounded size', async (t) => {
  const subscriptions = new Subscriptions();
  const leaving = handlerOf('c');
  for (const handler of [handlerOf('a'), handlerOf('b'), leaving]) subscriptions.add(handler);
  subscriptions.confirm(take(subscriptions));
  subscriptions.remove(leaving);
  subscriptions.lost();
  t.same(subscriptions.takeChange(1), { subscribe: ['a'], unsubscribe: [] });
  t.same(subscriptions.takeChange(1), { subscribe: ['b'], unsubscribe: [] });
  t.equal(subscriptions.takeChange(1), undefined);
});

t.test('in any order of events, the server ends with the wanted topics and every handler is ready', async () => {
  const step = fc.record({
    kind: fc.constantFrom('add', 'remove', 'take', 'confirm', 'lost'),
    topic: fc.constantFrom('a', 'b', 'c'),
  });
  fc.assert(fc.property(fc.array(step, { maxLength: 60 }), (steps) => runAgainstModel(steps)));
});

/**
 * Runs the steps against a model of the server with one change in flight at a time. True when both
 * agree at the end.
 */
function runAgainstModel(steps: { kind: string; topic: string }[]): boolean {
  const subscriptions = new Subscriptions();
  const server = new Set<string>();
  const handlers: TopicHandler[] = [];
  const ready = new Set<TopicHandler>();
  let inFlight: TopicChange | undefined;
  const begin = () => {
    inFlight ??= subscriptions.takeChange(2);
  };
  const finish = () => {
    if (!inFlight) return;
    for (const topic of inFlight.unsubscribe) server.delete(topic);
    for (const topic of inFlight.subscribe) server.add(topic);
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

function take(subscriptions: Subscriptions): TopicChange {
  const change = subscriptions.takeChange(10);
  if (!change) throw new Error('there should have been a change');
  return change;
}
