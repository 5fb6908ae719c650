import t from 'tap';
import { createBus } from '../../../lib/platform/bus/create-bus.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { systemRandom } from '../../../lib/platform/random.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';

const ports = { clock: systemClock, random: systemRandom, log: silentLogger };

t.test('Redis is used when it is configured, otherwise the database', async (t) => {
  const redisUrl = 'redis://127.0.0.1:1';
  const databaseUrl = 'postgres://127.0.0.1:1/x';
  t.equal(createBus({ redisUrl, databaseUrl, ...ports }).kind, 'redis');
  t.equal(createBus({ databaseUrl, ...ports }).kind, 'postgres');
  t.throws(() => createBus(ports), TypeError);
});
