/**
 * What every bus must do. The test file of each implementation runs it on two handles of one real
 * or simulated server.
 */
import type { Test } from 'tap';
import type { Bus, BusMessage } from '../../../lib/platform/bus/bus.ts';
import { until } from '../../support/until.ts';

export interface BusSetup {
  /** A new handle on the test's server, not yet started. The contract stops it. */
  open(): Bus;
  /** Breaks all connections, so that buses must reconnect. Returns when they can. */
  interrupt(): Promise<void>;
  /** Sends `payload` unchanged, without the bus's own checks. */
  sendRaw(topic: string, payload: string): Promise<void>;
}

export async function busContract(t: Test, setUp: (t: Test) => Promise<BusSetup>): Promise<void> {
  const withBuses = async (t: Test) => {
    const setup = await setUp(t);
    const buses = [setup.open(), setup.open()] as const;
    t.teardown(() => Promise.all(buses.map((bus) => bus.stop())));
    await Promise.all(buses.map((bus) => bus.start()));
    return { setup, alice: buses[0], bob: buses[1] };
  };

  await t.test(
    'a message reaches every handle that subscribed to its topic, also the sender, and no other',
    async (t) => {
      const { alice, bob } = await withBuses(t);
      const atAlice = await collect(alice, 'task:1');
      const atBob = await collect(bob, 'task:1');
      const other = await collect(bob, 'task:2');
      alice.publish('task:1', { id: 1, text: 'ü “quoted” \\ \n' });
      await until(() => atAlice.length === 1 && atBob.length === 1);
      bob.publish('task:2', { id: 2 });
      await until(() => other.length === 1);
      t.same(atAlice, [{ id: 1, text: 'ü “quoted” \\ \n' }]);
      t.same(atBob, atAlice);
      t.same(other, [{ id: 2 }]);
    },
  );

  await t.test('topics of 100 characters that differ only at the end are separate', async (t) => {
    const { alice, bob } = await withBuses(t);
    const stem = 'waitlist:'.padEnd(99, 'x');
    const first = await collect(bob, `${stem}1`);
    const second = await collect(bob, `${stem}2`);
    alice.publish(`${stem}1`, { n: 1 });
    alice.publish(`${stem}2`, { n: 2 });
    await until(() => first.length === 1 && second.length === 1);
    t.same([first, second], [[{ n: 1 }], [{ n: 2 }]]);
  });

  await t.test('messages of one publisher arrive in order', async (t) => {
    const { alice, bob } = await withBuses(t);
    const received = await collect(bob, 'run:x');
    const sent = Array.from({ length: 500 }, (_, n) => ({ n }));
    for (const message of sent) alice.publish('run:x', message);
    await until(() => received.length === sent.length);
    t.same(received, sent);
    await until(() => alice.stats().published === sent.length);
    t.match(alice.stats(), { published: 500, dropped: 0 });
    t.equal(bob.stats().received, 500);
  });

  await t.test('subscriptions to one topic are independent, and the last to close ends the topic', async (t) => {
    const { alice, bob } = await withBuses(t);
    const first: BusMessage[] = [];
    const one = await subscribeReady(bob, 'task:1', (message) => first.push(message));
    const second = await collect(bob, 'task:1');
    t.equal(bob.stats().topics, 1);
    alice.publish('task:1', { n: 1 });
    await until(() => first.length === 1 && second.length === 1);
    one.close();
    one.close();
    alice.publish('task:1', { n: 2 });
    await until(() => second.length === 2);
    t.same(first, [{ n: 1 }]);
  });

  await t.test('a topic that is closed and subscribed to again at once receives messages', async (t) => {
    const { alice, bob } = await withBuses(t);
    for (let round = 0; round < 20; round++) {
      const subscription = bob.subscribe('task:1', () => t.fail('a closed subscription received a message'));
      if (round % 2 === 0) await new Promise((resolve) => setTimeout(resolve, round / 4));
      subscription.close();
    }
    t.equal(bob.stats().topics, 0);
    const received = await collect(bob, 'task:1');
    alice.publish('task:1', { n: 1 });
    await until(() => received.length === 1);
  });

  await t.test('a handler that throws does not affect the others', async (t) => {
    const { alice, bob } = await withBuses(t);
    await subscribeReady(bob, 'task:1', () => {
      throw new Error('a bad handler');
    });
    const received = await collect(bob, 'task:1');
    alice.publish('task:1', { n: 1 });
    alice.publish('task:1', { n: 2 });
    await until(() => received.length === 2);
  });

  await t.test('onReady is called once after subscribe, also for a topic that already stands', async (t) => {
    const { bob } = await withBuses(t);
    for (const round of [1, 2]) {
      let ready = 0;
      bob.subscribe(
        'task:1',
        () => undefined,
        () => {
          ready += 1;
        },
      );
      t.equal(ready, 0, `not during subscribe, round ${round}`);
      await until(() => ready === 1);
    }
  });

  await t.test('after a reconnect each subscription is ready again and receives messages', async (t) => {
    const { setup, alice, bob } = await withBuses(t);
    const received: BusMessage[] = [];
    const ready = { first: 0, second: 0 };
    bob.subscribe(
      'task:1',
      (message) => received.push(message),
      () => (ready.first += 1),
    );
    bob.subscribe(
      'task:2',
      () => undefined,
      () => (ready.second += 1),
    );
    await until(() => ready.first === 1 && ready.second === 1);
    await setup.interrupt();
    await until(() => ready.first === 2 && ready.second === 2);
    await until(() => alice.isHealthy() && bob.isHealthy());
    alice.publish('task:1', { n: 1 });
    await until(() => received.length === 1);
    t.ok(bob.stats().reconnects >= 1);
  });

  await t.test('health follows the connection, and listeners are notified', async (t) => {
    const { setup, alice } = await withBuses(t);
    await until(() => alice.isHealthy());
    const changes: boolean[] = [];
    alice.onHealthChange((healthy) => changes.push(healthy));
    alice.onHealthChange(() => t.fail('a closed listener was notified')).close();
    await setup.interrupt();
    await until(() => changes.length >= 2 && alice.isHealthy());
    t.same(changes.slice(0, 2), [false, true]);
  });

  await t.test('a subscription made before start is established later', async (t) => {
    const setup = await setUp(t);
    const bus = setup.open();
    t.teardown(() => bus.stop());
    const received: BusMessage[] = [];
    let ready = 0;
    bus.subscribe(
      'task:1',
      (message) => received.push(message),
      () => (ready += 1),
    );
    await bus.start();
    await until(() => ready === 1);
    bus.publish('task:1', { n: 1 });
    await until(() => received.length === 1);
  });

  await t.test('a message that cannot be sent is dropped and counted, without an error', async (t) => {
    const { setup, alice } = await withBuses(t);
    const received = await collect(alice, 'task:1');
    const cyclic: BusMessage = {};
    cyclic.self = cyclic;
    alice.publish('task:1', { text: 'x'.repeat(4_000) });
    alice.publish('task:1', cyclic);
    alice.publish('task:1', { n: 1n });
    alice.publish('Not a topic', {});
    t.equal(alice.stats().dropped, 4);
    for (let n = 0; n < 1_500; n++) alice.publish('task:2', { n });
    t.equal(alice.stats().dropped, 504, 'a thousand may be in flight');
    alice.publish('task:1', { n: 'one too many' });
    await until(() => alice.stats().published === 1_000);
    alice.publish('task:1', { text: 'x'.repeat(3_900) });
    await until(() => received.length === 1);
    t.throws(() => alice.subscribe('Not a topic', () => undefined), TypeError);
    const unstarted = setup.open();
    unstarted.publish('task:1', {});
    t.equal(unstarted.stats().dropped, 1);
  });

  await t.test('an incoming message that is malformed or too large is dropped and counted', async (t) => {
    const { setup, alice } = await withBuses(t);
    const received = await collect(alice, 'task:1');
    const bad = ['', 'no json', '{"cut":', '[]', 'null', '7', `{"text":"${'x'.repeat(4_000)}"}`];
    for (const payload of bad) await setup.sendRaw('task:1', payload);
    alice.publish('task:1', { n: 1 });
    await until(() => received.length === 1);
    t.same(received, [{ n: 1 }]);
    t.match(alice.stats(), { dropped: bad.length, received: 1 });
  });

  await t.test('stop sends what is in flight, may be called twice, and ends the bus', async (t) => {
    const { alice, bob } = await withBuses(t);
    await until(() => alice.isHealthy());
    const received = await collect(bob, 'task:1');
    alice.publish('task:1', { last: 'words' });
    await Promise.all([alice.stop(), alice.stop()]);
    await alice.stop();
    await until(() => received.length === 1);
    t.equal(alice.isHealthy(), false);
    alice.publish('task:1', {});
    t.equal(alice.stats().dropped, 1);
  });
}

/** Subscribes and waits until it is established. Returns the messages received from then on. */
export async function collect(bus: Bus, topic: string): Promise<BusMessage[]> {
  const received: BusMessage[] = [];
  await subscribeReady(bus, topic, (message) => received.push(message));
  return received;
}

async function subscribeReady(bus: Bus, topic: string, onMessage: (message: BusMessage) => void) {
  let ready = false;
  const subscription = bus.subscribe(topic, onMessage, () => {
    ready = true;
  });
  await until(() => ready);
  return subscription;
}
