import t from 'tap';
import { KeyedSemaphore } from '../../../lib/platform/limiting/keyed-semaphore.ts';
import { ManualClock } from '../../support/manual-clock.ts';

t.test('work waits for work of its own key only, and for a limited time', async (t) => {
  const clock = new ManualClock();
  const semaphore = new KeyedSemaphore(1);
  const limit = { clock, withinMs: 1_000, late: () => new Error('late') };
  const { promise, resolve } = Promise.withResolvers<string>();
  const first = semaphore.runWithin('a', limit, () => promise);
  const waits = semaphore.runWithin('a', limit, async () => 'second');
  const late = t.rejects(
    semaphore.runWithin('a', { ...limit, withinMs: 500 }, async () => 'never'),
    { message: 'late' },
  );
  t.equal(await semaphore.runWithin('b', limit, async () => 'other'), 'other');
  await clock.advance(500);
  await late;
  resolve('first');
  t.same(await Promise.all([first, waits]), ['first', 'second']);
  t.equal(await semaphore.runWithin('a', limit, async () => 'again'), 'again', 'also after all have ended');
});
