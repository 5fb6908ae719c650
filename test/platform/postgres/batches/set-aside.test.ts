/** How often a queue tries again what it has set aside. */
import t from 'tap';
import { BatchQueue } from '../../../../lib/platform/postgres/batches/batch-queue.ts';
import { ManualClock } from '../../../support/manual-clock.ts';
import { recordingLogger } from '../../../support/recording-logger.ts';

t.test('a refused item whose owner does not decide is kept, and tried ever more rarely', async (t) => {
  const clock = new ManualClock();
  const logged: Record<string, unknown>[] = [];
  const done: string[] = [];
  let isRefused = true;
  let tries = 0;
  const queue = new BatchQueue<string>({
    clock,
    log: recordingLogger(logged),
    database: { query: () => Promise.reject(new Error('no statement is needed')) },
    what: 'items of a test',
    keyOf: (item) => item,
    maxBatch: 8,
    async work(items) {
      if (items.includes('b')) tries += 1;
      if (isRefused && items.includes('b')) throw new Error('such a value');
      done.push(...items);
      return undefined;
    },
  });
  const pass = async (seconds: number) => {
    for (let second = 0; second < seconds; second += 1) await clock.advance(1_000);
  };
  queue.addAll(['a', 'b', 'c']);
  await pass(120);
  t.same(done.toSorted(), ['a', 'c']);
  const before = tries;
  logged.length = 0;
  await pass(600);
  const later = tries - before;
  t.ok(later >= 19 && later <= 21, `${later} tries in ten minutes`);
  t.equal(logged.length, later, 'one line for each');
  isRefused = false;
  await pass(31);
  t.same([done.at(-1), queue.size], ['b', 0]);
});
