/** How long a task may run. */
import t from 'tap';
import { TimeLimit } from '../../../lib/agent/runner/time-limit.ts';
import { ManualClock } from '../../support/manual-clock.ts';

const limitOf = (
  clock: ManualClock,
  over: number[],
  { timeoutMs, passedMs = 0 }: { timeoutMs: number; passedMs?: number },
) => new TimeLimit({ clock, timeoutMs, passedMs, onOver: (ms) => over.push(ms) });

t.test('a limit counts from when the task came, however often it is changed', async (t) => {
  const clock = new ManualClock();
  const over: number[] = [];
  const limit = limitOf(clock, over, { timeoutMs: 1_000 });
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
  const limit = limitOf(clock, over, { timeoutMs: 60_000 });
  await clock.advance(2_000);
  limit.change(1);
  await clock.advance(0);
  t.same(over, [1]);
});

t.test('a limit that was cancelled is not set again', async (t) => {
  const clock = new ManualClock();
  const over: number[] = [];
  const limit = limitOf(clock, over, { timeoutMs: 1_000 });
  limit.cancel();
  limit.change(10);
  await clock.advance(10_000);
  t.same(over, []);
});

t.test('what a former process has used of a limit counts', async (t) => {
  const clock = new ManualClock();
  const over: number[] = [];
  limitOf(clock, over, { timeoutMs: 1_000, passedMs: 900 });
  await clock.advance(99);
  t.same(over, []);
  await clock.advance(1);
  t.same(over, [1_000]);
});
