import { appendFile, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { LogFiles } from '../../../../lib/agent/containers/logs/log-files.ts';
import { LogWatch } from '../../../../lib/agent/containers/logs/log-watch.ts';
import { ManualClock } from '../../../support/manual-clock.ts';
import { until } from '../../../support/until.ts';

t.test('tells of each change, first by the watch and then by looks, and rests', async (t) => {
  const clock = new ManualClock();
  const directory = t.testdir({ current: 'a' });
  const watch = new LogWatch({ clock, files: new LogFiles(directory, '') });
  let told = 0;
  const unlisten = watch.listen(() => (told += 1));
  /** Lets the clock pass so much time, once; then only what is due immediately happens. */
  const toldAfter = async (ms: number, times: number) => {
    await clock.advance(ms);
    await until(async () => {
      await clock.advance(0);
      return told === times;
    });
  };
  await toldAfter(0, 1);
  await appendFile(join(directory, 'current'), 'b');
  await toldAfter(50, 2);
  // Nothing is new at this look, so the watch begins, and tells without any time passing.
  await clock.advance(50);
  await until(() => clock.timers === 1);
  await appendFile(join(directory, 'current'), 'c');
  await toldAfter(0, 3);
  unlisten();
  t.equal(clock.timers, 0);
});

t.test('a rare look finds what the watch cannot see', async (t) => {
  const clock = new ManualClock();
  const directory = join(t.testdir({}), 'logs');
  const watch = new LogWatch({ clock, files: new LogFiles(directory, ''), slowPollMs: 7_000 });
  let told = 0;
  const unlisten = watch.listen(() => (told += 1));
  const passes = (ms: number) =>
    until(async () => {
      await clock.advance(ms);
      return clock.timers === 1 && told > 0;
    });
  await passes(0);
  await clock.advance(50);
  await until(() => clock.timers === 1);
  await mkdir(directory);
  await appendFile(join(directory, 'current'), 'a');
  const before = told;
  await until(async () => {
    await clock.advance(7_000);
    return told > before;
  });
  unlisten();
  t.equal(clock.timers, 0);
});

t.test('an impatient listener does not wake the others more often than they want', async (t) => {
  const clock = new ManualClock();
  const directory = t.testdir({ current: 'a' });
  const watch = new LogWatch({ clock, files: new LogFiles(directory, '') });
  let [fast, slow] = [0, 0];
  const ends = [watch.listen(() => (fast += 1), 2), watch.listen(() => (slow += 1))];
  /** A change, of which only the fast listener is told after 2 ms. */
  const change = async (n: number) => {
    await appendFile(join(directory, 'current'), 'b');
    await clock.advance(2);
    await until(async () => {
      await clock.advance(0);
      return fast === n;
    });
  };
  await clock.advance(0);
  await until(async () => {
    await clock.advance(0);
    return fast === 1;
  });
  t.equal(slow, 1);
  for (let n = 2; n <= 25; n += 1) await change(n);
  t.equal(slow, 1, '48 ms have passed');
  await clock.advance(2);
  t.equal(slow, 2, 'what has changed meanwhile is told at its time, although nothing is new then');
  for (const end of ends) end();
  t.equal(clock.timers, 0);
});
