import t from 'tap';
import { DelayedRetry } from '../../../../lib/control/tasks/dispatch/delayed-retry.ts';
import { ManualClock } from '../../../support/manual-clock.ts';

t.test('a server whose row stays locked is claimed for less and less often', async (t) => {
  const clock = new ManualClock();
  const from = clock.now();
  const times: number[] = [];
  const retry = new DelayedRetry(clock, (serverUuid) => {
    times.push(clock.now() - from);
    retry.add([serverUuid, serverUuid]);
  });
  retry.add(['a']);
  await clock.advance(10_000);
  t.same(times, [50, 150, 350, 750, 1_550, 3_150, 6_350, 9_550]);
  retry.stop();
  t.equal(clock.timers, 0);
});

t.test('the pause is short again after a claim that was not held up, and for any other server', async (t) => {
  const clock = new ManualClock();
  const claimed: string[] = [];
  const retry = new DelayedRetry(clock, (serverUuid) => claimed.push(serverUuid));
  retry.add(['a']);
  await clock.advance(50);
  retry.add(['a', 'b']);
  await clock.advance(50);
  t.same(claimed, ['a', 'b']);
  await clock.advance(50);
  t.same(claimed, ['a', 'b', 'a']);
  retry.forget(['a']);
  retry.add(['a']);
  await clock.advance(50);
  t.same(claimed, ['a', 'b', 'a', 'a']);
});
