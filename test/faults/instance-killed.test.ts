import { setTimeout as sleep } from 'node:timers/promises';
import { faultTest } from '../support/fault-test.ts';

faultTest('an instance that is killed takes nothing with it', {}, async ({ zone }) => {
  // First one that holds a real agent, and long enough for its lease to lapse and its rows to count as ownerless.
  const first = await zone.holderOf(zone.agents[0]?.serverUuid ?? '');
  await first.program.kill();
  await sleep(14_000);
  first.program.start();
  await zone.ready(first);

  // Then one that is back at once, while its former run still counts as live.
  const second = await zone.holderOf(zone.agents[1]?.serverUuid ?? '');
  await second.program.kill();
  second.program.start();
  await zone.ready(second);
  await sleep(12_000);
});
