import { setTimeout as sleep } from 'node:timers/promises';
import { faultTest } from '../support/fault-test.ts';

faultTest('a Redis that is killed, restarted or frozen costs latency only', {}, async ({ zone }) => {
  await zone.redis.stop();
  await sleep(8_000);
  await zone.redis.restart();
  await sleep(5_000);
  await zone.redis.restart();
  await sleep(5_000);
  zone.redis.freeze();
  await sleep(20_000);
  zone.redis.thaw();
  await sleep(5_000);
});
