import { setTimeout as sleep } from 'node:timers/promises';
import { faultTest } from '../support/fault-test.ts';

/**
 * Shorter than a lease, so that no instance counts as dead, but long enough that agents begin to
 * try others.
 */
const STILL_MS = [2_500, 2_900, 3_400];

faultTest('instances that freeze for a few seconds, one or all, lose no server', {}, async ({ zone }) => {
  const [first] = zone.instances;
  for (const ms of STILL_MS) {
    for (const still of [[first], zone.instances]) {
      for (const instance of still) instance?.program.freeze();
      await sleep(ms);
      for (const instance of still) instance?.program.thaw();
      await sleep(6_000);
    }
  }
});
