/** The order in which things with names are shown. */
import t from 'tap';
import { sortByName } from '../../../lib/cli/terminal/name-order.ts';

t.test('nodes come in order of their names, as people count', (t) => {
  const node = (name: string) => ({ server_uuid: '', name, status: 'new', updated_at: '' }) as const;
  const names = ['web-10', 'db-1', 'web-2', 'web-1'];
  t.same(
    sortByName(names.map(node)).map(({ name }) => name),
    ['db-1', 'web-1', 'web-2', 'web-10'],
  );
  const same = ['b', 'a'].map((uuid) => ({ name: 'web', uuid }));
  t.same(
    sortByName(same).map(({ uuid }) => uuid),
    ['a', 'b'],
    'those with the same name by uuid',
  );
  t.end();
});
