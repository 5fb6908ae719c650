/** The real clock. */
import { mock } from 'node:test';
import t from 'tap';
import { systemClock } from '../../../lib/platform/time/clock.ts';

const DAY_MS = 86_400_000;

t.test('a delay that is longer than a timer of Node lasts as long as it says', async (t) => {
  mock.timers.enable({ apis: ['setTimeout'] });
  t.teardown(() => mock.timers.reset());
  const fired: string[] = [];
  systemClock.after(60 * DAY_MS, () => fired.push('60 days'));
  void systemClock.sleep(25 * DAY_MS).then(() => fired.push('25 days'));
  const cancelled = systemClock.after(50 * DAY_MS, () => fired.push('cancelled'));
  const aborted = new AbortController();
  const asleep = systemClock.sleep(Number.POSITIVE_INFINITY, aborted.signal);
  const daysPass = async (days: number) => {
    for (let day = 0; day < days; day += 1) mock.timers.tick(DAY_MS);
    await null;
  };
  await daysPass(24);
  t.same(fired, []);
  await daysPass(2);
  t.same(fired, ['25 days']);
  cancelled.cancel();
  await daysPass(33);
  t.same(fired, ['25 days']);
  // A timer that begins within a tick begins at its end: each part may take a day more.
  await daysPass(4);
  t.same(fired, ['25 days', '60 days']);
  aborted.abort();
  await asleep;
});

t.test('a long delay is not a timer that Node warns of', async (t) => {
  const warnings: string[] = [];
  const note = ({ name }: Error) => warnings.push(name);
  process.on('warning', note);
  t.teardown(() => process.off('warning', note));
  const timer = systemClock.after(2 ** 31, () => t.fail('it has fired at once'));
  await systemClock.sleep(20);
  timer.cancel();
  t.same(warnings, []);
});
