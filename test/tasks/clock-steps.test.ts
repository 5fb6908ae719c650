import t from 'tap';
import { ClockSteps } from '../../lib/tasks/clock-steps.ts';

const KEEP_MS = 100_000;

function watching() {
  const steps = new ClockSteps(KEEP_MS);
  const read = (databaseMs: number, askedAt: number, answeredAt = askedAt) =>
    steps.read({ databaseMs, askedAt, answeredAt });
  return { steps, read };
}

t.test('a clock that goes as the own one is not set ahead, however long an answer takes', async (t) => {
  const { steps, read } = watching();
  t.notOk(read(1_000_000, 0), 'nothing to compare with');
  t.notOk(read(1_005_000, 5_000));
  t.notOk(read(1_019_900, 10_000, 20_000), 'read late');
  t.notOk(read(1_030_000, 30_000, 40_000), 'read early');
  t.notOk(read(1_045_900, 45_000), 'corrected');
  t.equal(steps.aheadMs(45_000), 0);
});

t.test('a step is as large as it can have been, and counts for a while; those on the way back do not', async (t) => {
  const { steps, read } = watching();
  read(0, 0, 100);
  t.ok(read(65_000, 5_000, 5_200));
  t.equal(steps.aheadMs(5_200), 60_100);
  t.notOk(read(10_000, 10_000), 'set back');
  t.equal(steps.aheadMs(10_000), 60_100);
  t.ok(read(35_000, 15_000));
  t.equal(steps.aheadMs(15_000), 60_100 + 20_000);
  t.equal(steps.aheadMs(5_200 + KEEP_MS), 20_000);
  t.equal(steps.aheadMs(15_000 + KEEP_MS), 0);
});

t.test('of very many steps the sum is kept', async (t) => {
  const { steps, read } = watching();
  read(0, 0);
  for (let n = 1; n <= 1_000; n++) read(n * 3_000, n * 10);
  t.equal(steps.aheadMs(10_000), 1_000 * 2_990);
});
