import { setTimeout as sleep } from 'node:timers/promises';
import { faultTest } from '../support/fault-test.ts';

faultTest('three instances killed one after the other lose nothing', { simulated: 20 }, async ({ zone }) => {
  // Each is down for longer than its lease. `npm run chaos -- --plan instances` restarts them
  // sooner.
  for (const instance of zone.instances) {
    await sleep(1_500);
    await instance.program.kill();
    await sleep(7_000);
    instance.program.start();
    await zone.ready(instance);
  }
  await sleep(3_000);
});
