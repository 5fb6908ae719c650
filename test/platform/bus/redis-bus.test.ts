import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { Redis } from 'ioredis';
import t, { type Test } from 'tap';
import { createRedisBus } from '../../../lib/platform/bus/redis-bus.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { systemRandom } from '../../../lib/platform/random.ts';
import { type Clock, systemClock } from '../../../lib/platform/time/clock.ts';
import { noRedis, noRedisServer, sharedRedisUrl, startTestRedis, uniquePrefix } from '../../support/redis.ts';
import { until } from '../../support/until.ts';
import { busContract, collect } from './contract.ts';

const ports = { clock: systemClock, random: systemRandom, log: silentLogger };

t.test('the redis bus fulfils the contract', { skip: noRedis }, async (t) => {
  const url = await sharedRedisUrl();
  const admin = new Redis(url);
  t.teardown(() => admin.disconnect());
  await busContract(t, async () => {
    const prefix = uniquePrefix();
    return {
      open: () => createRedisBus({ url, prefix, ...ports }),
      interrupt: async () => {
        const ownId = await admin.client('ID');
        const clients = String(await admin.client('LIST'))
          .split('\n')
          .filter((line) => line.includes('cnapi-bus'));
        for (const id of clients.map((line) => /^id=(\d+)/.exec(line)?.[1])) {
          if (id !== undefined && Number(id) !== ownId) await admin.client('KILL', 'ID', id);
        }
      },
      sendRaw: async (topic, payload) => void (await admin.publish(prefix + topic, payload)),
    };
  });
});

t.test("instances with different prefixes do not receive each other's messages", { skip: noRedis }, async (t) => {
  const url = await sharedRedisUrl();
  const [alice, bob] = [uniquePrefix(), uniquePrefix()].map((prefix) => createRedisBus({ url, prefix, ...ports }));
  if (!alice || !bob) throw new Error('unreachable');
  t.teardown(() => Promise.all([alice.stop(), bob.stop()]));
  await Promise.all([alice.start(), bob.start()]);
  const atAlice = await collect(alice, 'task:1');
  const atBob = await collect(bob, 'task:1');
  alice.publish('task:1', { from: 'alice' });
  await until(() => atAlice.length === 1);
  bob.publish('task:1', { from: 'bob' });
  await until(() => atBob.length === 1);
  t.same([atAlice, atBob], [[{ from: 'alice' }], [{ from: 'bob' }]]);
});

t.test(
  'a killed Redis makes the bus unhealthy, and it reconnects after a restart',
  { skip: noRedisServer },
  async (t) => {
    const { redis, bus } = await startBus(t);
    const received = await collect(bus, 'task:1');
    await redis.stop();
    await until(() => !bus.isHealthy());
    for (let n = 0; n < 100; n++) bus.publish('task:1', { n });
    t.equal(bus.stats().dropped, 100);
    await redis.restart();
    await until(() => bus.isHealthy());
    bus.publish('task:1', { n: 'after' });
    await until(() => received.length === 1);
    t.equal(bus.stats().reconnects, 1);
  },
);

t.test(
  'a frozen Redis is detected, fills no memory, is dropped and connected to again',
  { skip: noRedisServer },
  async (t) => {
    const { redis, bus } = await startBus(t);
    const received = await collect(bus, 'task:1');
    redis.freeze();
    for (let n = 0; n < 5_000; n++) bus.publish('task:2', { n, text: 'x'.repeat(1_000) });
    t.equal(bus.stats().dropped, 4_000);
    await until(() => !bus.isHealthy());
    await until(() => bus.stats().dropped === 5_000);
    bus.publish('task:2', {});
    t.equal(bus.stats().dropped, 5_001, 'the connection was dropped');
    redis.thaw();
    await until(() => bus.isHealthy());
    bus.publish('task:1', { n: 'after' });
    await until(() => received.length === 1);
    t.equal(bus.stats().published, 1);
  },
);

t.test('a Redis that freezes briefly is healthy again without a reconnect', { skip: noRedisServer }, async (t) => {
  const { redis, bus } = await startBus(t, 300);
  redis.freeze();
  await until(() => !bus.isHealthy());
  redis.thaw();
  await until(() => bus.isHealthy());
  t.ok(bus.stats().reconnects <= 1, 'none, or one on a busy machine that thaws too late');
});

t.test('start returns without a Redis, and connects when it comes', { skip: noRedisServer }, async (t) => {
  const redis = await startTestRedis(t);
  await redis.stop();
  const bus = createRedisBus({ url: redis.url, ...ports });
  t.teardown(() => bus.stop());
  await bus.start();
  t.equal(bus.isHealthy(), false);
  await redis.restart();
  await until(() => bus.isHealthy());
});

t.test('a server that accepts connections and never answers is dropped and tried again', async (t) => {
  let connections = 0;
  const server = createServer((socket) => {
    connections += 1;
    socket.on('error', () => undefined);
    socket.resume();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  const hasty: Clock = { ...systemClock, after: (delayMs, callback) => systemClock.after(delayMs / 20, callback) };
  const url = `redis://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const bus = createRedisBus({ url, ...ports, clock: hasty });
  t.teardown(() => bus.stop());
  await bus.start();
  await until(() => connections >= 6);
  t.match(bus.stats(), { reconnects: 0 });
});

t.test('stop returns at once while Redis is frozen or unreachable', { skip: noRedisServer }, async (t) => {
  const { redis, bus } = await startBus(t, 60_000);
  redis.freeze();
  bus.publish('task:1', {});
  await bus.stop();
  const late = createRedisBus({ url: redis.url, ...ports });
  await late.start();
  t.equal(late.isHealthy(), false, 'connected to a server that does not answer');
  await late.stop();
  redis.thaw();
});

async function startBus(t: Test, beatMs = 100) {
  const redis = await startTestRedis(t);
  const bus = createRedisBus({ url: redis.url, ...ports, beatMs });
  t.teardown(() => bus.stop());
  await bus.start();
  await until(() => bus.isHealthy());
  return { redis, bus };
}
