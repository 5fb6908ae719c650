import t from 'tap';
import { BoundedMap } from '../../../lib/platform/limiting/bounded-map.ts';

t.test('with one entry too many, the one that was set longest ago is dropped', async (t) => {
  const map = new BoundedMap<string, number>(3);
  t.same(
    ['a', 'b', 'b', 'c', 'd'].map((key, at) => map.set(key, at)),
    [undefined, undefined, undefined, undefined, 0],
    'and returned',
  );
  t.same([...map.keys()], ['b', 'c', 'd']);
  t.equal(map.set('b', 5), undefined, 'set again, it is the newest');
  map.get('c');
  t.equal(map.set('e', 6), 3, 'a read does not make it newer');
  t.same([...map.values()], [4, 5, 6]);
  t.equal(map.size, 3);
});
