import t from 'tap';
import { RecentIds } from '../../../lib/platform/waits/recent-ids.ts';

t.test('the list has a limited number of the newest ids, each once', async (t) => {
  const recent = new RecentIds(3);
  for (const id of ['a', 'b', 'b', 'c', 'd']) recent.add(id);
  t.same(recent.take(), ['b', 'c', 'd']);
  t.same(recent.take(), []);
  recent.add('b');
  t.same(recent.take(), ['b']);
});
