import { setTimeout as sleep } from 'node:timers/promises';
import { faultTest } from '../support/fault-test.ts';

faultTest('a killed instance loses no server, task or wait', {}, async ({ zone }) => {
  // First one that holds a real agent, for long enough that its lease lapses and its rows count as
  // ownerless.
  const first = await zone.holderOf(zone.agents[0]?.serverUuid ?? '');
  await first.program.kill();
  await sleep(14_000);
  first.program.start();
  await zone.ready(first);

  // Then one that restarts at once, while its former run still counts as live.
  const second = await zone.holderOf(zone.agents[1]?.serverUuid ?? '');
  await second.program.kill();
  second.program.start();
  await zone.ready(second);
  await sleep(12_000);
});
