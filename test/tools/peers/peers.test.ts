/**
 * The arithmetic of the comparison, and that it refuses figures of work that was not done or of a
 * broken lock.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import t from 'tap';
import { cpuMsOf, treeOf } from '../../../tools/bench/cpu.ts';
import { contend, handOver, type Lock } from '../../../tools/peers/contention.ts';
import { compare, type Side, takePairs, withAbsent } from '../../../tools/peers/contest.ts';
import { checkDone } from '../../../tools/peers/figures/queues.ts';
import { until } from '../../support/until.ts';

function side(name: string, values: number[], log: string[]): Side {
  return {
    name,
    async take() {
      log.push(name);
      return { speed: values.shift() ?? 0 };
    },
  };
}

const speed = { key: 'speed', what: 'speed', unit: '/s' };

t.test('our side and each peer take turns', async (t) => {
  const log: string[] = [];
  const peers = [side('one', [], log), side('two', [], log)];
  await takePairs(side('ours', [], log), peers, { rounds: 2, say: () => undefined });
  t.same(log, ['ours', 'one', 'ours', 'two', 'ours', 'one', 'ours', 'two']);
});

t.test('a row is the median of ours beside that of the peer, with both spreads and ratios', async (t) => {
  const pairs = await takePairs(side('ours', [10, 30, 20], []), [side('one', [5, 10, 40], [])], {
    rounds: 3,
    say: () => undefined,
  });
  const [row] = compare(pairs, [speed]);
  t.match(row, { what: 'speed', value: 20, unit: '/s', floor: { of: 'one', value: 10 } });
  t.same(row?.notes, ['ours 10 to 30, theirs 5 to 40; ratio 0.5 to 3 over 3 pairs']);
  t.throws(() => compare(pairs, [{ ...speed, key: 'size' }]), /size/);
});

t.test('peers that could not take part are named beneath the last row', async (t) => {
  const row = { what: 'speed', value: 1, unit: '/s' };
  t.same(withAbsent([row, row], []), [row, row]);
  const [first, last] = withAbsent([row, row], [{ name: 'nats-server', reason: 'there is none' }]);
  t.same(first, row);
  t.same(last?.notes, ['not measured: nats-server: there is none']);
});

t.test('work that was not done, or has no recorded end, fails the figure', async (t) => {
  const all = { dispatched: 10, handled: { runs: 10, distinct: 10 }, unfinished: 0 };
  checkDone('queue', all);
  checkDone('queue', { ...all, handled: { runs: 12, distinct: 10 } });
  const wrong: [object, RegExp][] = [
    [{ dispatched: 0, handled: { runs: 0, distinct: 0 } }, /nothing was dispatched/],
    [{ handled: { runs: 9, distinct: 9 } }, /of 10 jobs dispatched 1 were never done/],
    [{ handled: { runs: 10, distinct: 9 } }, /of 10 jobs dispatched 1 were never done/],
    [{ unfinished: 1 }, /no end of 1 jobs/],
  ];
  for (const [change, message] of wrong) t.throws(() => checkDone('queue', { ...all, ...change }), message);
});

/** Grants in order of arrival. When broken, it lets everyone in. */
function localLock({ isBroken }: { isBroken: boolean }): Lock {
  let tail = Promise.resolve();
  return {
    async acquire() {
      const before = tail;
      const { promise, resolve } = Promise.withResolvers<void>();
      tail = promise;
      if (!isBroken) await before;
      return async () => resolve();
    },
  };
}

t.test('a lock that two hold at a time fails the figure', async (t) => {
  const times = { contenders: 3, seconds: 0.05 };
  const { perSecond, changedPercent, waits } = await contend(localLock({ isBroken: false }), times);
  t.ok(perSecond > 0 && waits.length > 0);
  t.ok(changedPercent > 50, 'three contenders take turns');
  t.ok((await handOver(localLock({ isBroken: false }), { seconds: 0.05 })).length > 0);
  await t.rejects(contend(localLock({ isBroken: true }), times), /hold the lock at the same time/);
  await t.rejects(handOver(localLock({ isBroken: true }), { seconds: 0.05 }), /hold the lock at the same time/);
});

t.test('a lock that the same holder takes again does not change hands', async (t) => {
  const { changedPercent } = await contend(localLock({ isBroken: false }), { contenders: 1, seconds: 0.05 });
  t.ok(changedPercent < 100);
});

t.test('CPU time is that of the named processes, and the tree of a process has its children', async (t) => {
  const parent = spawn('sh', ['-c', 'sh -c "echo up; while :; do :; done" & wait']);
  t.teardown(() => {
    for (const pid of treeOf(parent.pid ?? 0).reverse()) process.kill(pid, 'SIGKILL');
  });
  await once(parent.stdout, 'data');
  const pids = treeOf(parent.pid ?? 0);
  t.equal(pids.length, 2);
  const before = cpuMsOf(pids);
  await until(() => cpuMsOf(pids) >= before + 20, 'its loop to use 20 ms');
  t.equal(cpuMsOf([]), 0);
});
