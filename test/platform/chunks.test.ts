import t from 'tap';
import { chunksOf } from '../../lib/platform/chunks.ts';

t.test('a list is cut into pieces in order, of which the last may be shorter', async (t) => {
  t.same([...chunksOf([1, 2, 3, 4, 5], 2)], [[1, 2], [3, 4], [5]]);
  t.same(
    [...chunksOf([1, 2, 3, 4], 2)],
    [
      [1, 2],
      [3, 4],
    ],
    'no empty piece at the end',
  );
  t.same([...chunksOf([1, 2], 5)], [[1, 2]]);
  t.same([...chunksOf([], 5)], []);
});
