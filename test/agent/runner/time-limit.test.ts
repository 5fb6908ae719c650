/** How long a task may run. */
import t from 'tap';
import { TimeLimit } from '../../../lib/agent/runner/time-limit.ts';
import { ManualClock } from '../../support/manual-clock.ts';

t.test('a limit counts from when the task came, however often it is changed', async (t) => {
  const clock = new ManualClock();
  const over: number[] = [];
  const limit = new TimeLimit(clock, 1_000, (timeoutMs) => over.push(timeoutMs));
  await clock.advance(900);
  limit.change(5_000);
  await clock.advance(4_000);
  t.same(over, [], 'it is longer');
  limit.change(4_950);
  await clock.advance(49);
  t.same(over, []);
  await clock.advance(1);
  t.same(over, [4_950], 'and shorter again');
});

t.test('a limit that is over when it is changed ends the task immediately', async (t) => {
  const clock = new ManualClock();
  const over: number[] = [];
  const limit = new TimeLimit(clock, 60_000, (timeoutMs) => over.push(timeoutMs));
  await clock.advance(2_000);
  limit.change(1);
  await clock.advance(0);
  t.same(over, [1]);
});

t.test('a limit that was cancelled is not set again', async (t) => {
  const clock = new ManualClock();
  const over: number[] = [];
  const limit = new TimeLimit(clock, 1_000, (timeoutMs) => over.push(timeoutMs));
  limit.cancel();
  limit.change(10);
  await clock.advance(10_000);
  t.same(over, []);
});
