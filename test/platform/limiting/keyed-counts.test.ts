import t from 'tap';
import { KeyedCounts } from '../../../lib/platform/limiting/keyed-counts.ts';

t.test('what is held is counted until it is released', async (t) => {
  const counts = new KeyedCounts();
  t.same([counts.add('a'), counts.add('a'), counts.add('b')], [1, 2, 1]);
  counts.add('a', -1);
  t.equal(counts.of('a'), 1);
  t.equal(counts.add('a', 5), 6);
  counts.add('a', -6);
  t.equal(counts.of('a'), 0);
});
