import t from 'tap';
import { RunningVms } from '../../../lib/agent/vms/running-vms.ts';

t.test('a server runs 16 detached programs, and refuses the next one until one has ended', async (t) => {
  const running = new RunningVms({ containers: {} as never, stateOf: () => 'running' });
  const ends: (() => void)[] = [];
  const programs = Array.from({ length: 16 }, () => running.detached(() => new Promise<void>((end) => ends.push(end))));
  await t.rejects(
    running.detached(async () => t.fail('it must not run')),
    { code: 'TooManyPrograms', message: /16 detached programs/ },
  );
  ends.shift()?.();
  await programs.shift();
  await t.rejects(
    running.detached(async () => {
      throw new Error('it failed');
    }),
    /it failed/,
  );
  t.equal(await running.detached(async () => 'ran'), 'ran');
  for (const end of ends) end();
  await Promise.all(programs);
});
