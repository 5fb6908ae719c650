import t from 'tap';
import { DatabaseUnavailableError } from '../../lib/errors.ts';
import { silentLogger } from '../../lib/log.ts';
import { systemClock } from '../../lib/ports/clock.ts';
import { Runner, type RunnerOptions } from '../../lib/waits/runner.ts';
import { until } from '../support/until.ts';

function setUp(t: { teardown(work: () => unknown): void }, { lanes = 1 } = {}) {
  const queue: number[] = [];
  const batches: number[][] = [];
  const releases: (() => void)[] = [];
  const failures: Error[] = [];
  const options: RunnerOptions = {
    clock: systemClock,
    log: silentLogger,
    what: 'a test',
    lanes,
    hasWork: () => queue.length > 0,
    work: async () => {
      const batch = queue.splice(0, 3);
      batches.push(batch);
      const failure = failures.shift();
      if (failure !== undefined) {
        queue.unshift(...batch);
        throw failure;
      }
      await new Promise<void>((resolve) => releases.push(resolve));
    },
  };
  const runner = new Runner(options);
  t.teardown(() => {
    for (const release of releases) release();
    return runner.stop();
  });
  return { runner, queue, batches, releases, failures };
}

t.test('what gathers during a run is done by the next one', async (t) => {
  const { runner, queue, batches, releases } = setUp(t);
  runner.kick();
  t.same(batches, [], 'no work, no run');
  queue.push(1);
  runner.kick();
  for (const n of [2, 3, 4, 5]) {
    queue.push(n);
    runner.kick();
  }
  t.same(batches, [[1]]);
  releases[0]?.();
  await until(() => batches.length === 2, 'the second run');
  releases[1]?.();
  await until(() => batches.length === 3, 'the third run');
  t.same(batches, [[1], [2, 3, 4], [5]]);
});

t.test('so many runs at once and no more', async (t) => {
  const { runner, queue, batches } = setUp(t, { lanes: 2 });
  for (const n of [1, 2, 3]) {
    queue.push(n);
    runner.kick();
  }
  t.same(batches, [[1], [2]]);
  t.same(queue, [3]);
});

t.test('work that fails is tried again after a pause, and kicks do not hurry it', async (t) => {
  const { runner, queue, batches, failures } = setUp(t);
  failures.push(new DatabaseUnavailableError(), new Error('a defect'));
  queue.push(1);
  runner.kick();
  await new Promise((resolve) => setImmediate(resolve));
  for (let n = 0; n < 10; n++) runner.kick();
  t.equal(batches.length, 1);
  await until(() => batches.length === 3, 'the third try');
  t.same(batches, [[1], [1], [1]]);
});

t.test('a kick may wait for more to gather; an earlier one goes first', async (t) => {
  const { runner, queue, batches } = setUp(t);
  queue.push(1);
  runner.kick(60_000);
  t.same(batches, []);
  runner.kick(10);
  await until(() => batches.length === 1, 'the run');
});

t.test('stopping waits for what runs and begins nothing', async (t) => {
  const { runner, queue, batches, releases } = setUp(t);
  queue.push(1, 2, 3, 4);
  runner.kick();
  let isStopped = false;
  const stopping = runner.stop().then(() => {
    isStopped = true;
  });
  await new Promise((resolve) => setImmediate(resolve));
  t.equal(isStopped, false);
  releases[0]?.();
  await stopping;
  runner.kick();
  t.same(batches, [[1, 2, 3]]);
});
