import { getEventListeners } from 'node:events';
import t from 'tap';
import { BrokerConnection } from '../../../lib/platform/amqp/broker-connection.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { systemRandom } from '../../../lib/platform/random.ts';
import { type Clock, systemClock } from '../../../lib/platform/time/clock.ts';
import { freePort } from '../../support/fleet-harness.ts';

t.test('attempts to connect leave no listeners on the signal that stops them', async (t) => {
  const counts: number[] = [];
  const { promise: enough, resolve } = Promise.withResolvers<void>();
  /** Counts the listeners in the pauses between attempts, which end at once. */
  const clock: Clock = {
    ...systemClock,
    sleep: (delayMs, signal) => {
      if (delayMs >= 10_000) return systemClock.sleep(delayMs, signal);
      if (signal !== undefined) counts.push(getEventListeners(signal, 'abort').length);
      if (counts.length === 5) resolve();
      return systemClock.sleep(1, signal);
    },
  };
  const connection = new BrokerConnection({
    url: `amqp://127.0.0.1:${await freePort()}`,
    name: 'test',
    setUp: async () => undefined,
    probe: { exchange: 'amq.topic', routingKey: 'test' },
    clock,
    random: { ...systemRandom, fraction: () => 0 },
    log: silentLogger,
  });
  connection.start();
  await enough;
  await connection.stop();
  t.same(counts.slice(0, 5), [0, 0, 0, 0, 0]);
});
