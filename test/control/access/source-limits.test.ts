import t from 'tap';
import { SourceBuckets, SourceCounts } from '../../../lib/control/access/source-limits.ts';

t.test('a source may use its burst at once, then continues at the rate', async (t) => {
  const buckets = new SourceBuckets({ perSecond: 2, burst: 3 });
  t.same(
    [1, 2, 3].map(() => buckets.take('a', 0)),
    [0, 0, 0],
  );
  t.equal(buckets.take('a', 0), 500);
  t.equal(buckets.take('a', 250), 250, 'a refused attempt costs nothing');
  t.equal(buckets.take('a', 500), 0);
  t.equal(buckets.take('a', 500), 500);
  t.same(
    [1, 2, 3, 4].map(() => buckets.take('a', 60_000)),
    [0, 0, 0, 500],
    'no more than the burst is saved',
  );
});

t.test('sources are independent, and what is given back may be taken again', async (t) => {
  const buckets = new SourceBuckets({ perSecond: 1, burst: 1 });
  buckets.giveBack('a');
  t.equal(buckets.size, 0, 'nothing was taken');
  t.equal(buckets.take('a', 0), 0);
  t.equal(buckets.take('a', 0), 1000);
  buckets.giveBack('a');
  buckets.giveBack('a');
  t.same([buckets.take('a', 0), buckets.take('a', 0)], [0, 1000], 'no more than the burst is saved');
  t.equal(buckets.take('b', 0), 0);
});

t.test('a bounded number of sources is kept, and the least recently used one is dropped', async (t) => {
  const buckets = new SourceBuckets({ perSecond: 1, burst: 1 });
  for (let each = 0; each < 50_000; each++) buckets.take(`s${each}`, 0);
  buckets.take('s0', 0);
  buckets.take('one more', 0);
  t.equal(buckets.size, 50_000);
  t.equal(buckets.take('s0', 0), 1000, 'recently used');
  t.equal(buckets.take('s1', 0), 0, 'dropped, so its limit starts anew');
});

t.test('what is held is counted until it is released', async (t) => {
  const counts = new SourceCounts();
  t.same([counts.add('a'), counts.add('a'), counts.add('b')], [1, 2, 1]);
  counts.remove('a');
  t.equal(counts.of('a'), 1);
  counts.remove('a');
  counts.remove('a');
  t.equal(counts.of('a'), 0);
});
