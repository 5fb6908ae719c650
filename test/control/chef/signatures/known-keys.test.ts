/** Which public keys an instance remembers of a caller. */
import t from 'tap';
import { KnownKeys } from '../../../../lib/control/chef/signatures/known-keys.ts';

t.test('of each caller the two keys that fitted last are known, the last one first', async (t) => {
  const known = new KnownKeys();
  t.same(known.of('acme alice'), []);
  for (const key of ['a', 'b', 'c', 'b']) known.add('acme alice', key);
  known.add('acme bob', 'd');
  t.same(known.of('acme alice'), ['b', 'c']);
  t.same(known.of('acme bob'), ['d']);
});

t.test('a key that is deleted leaves the others of its caller', async (t) => {
  const known = new KnownKeys();
  for (const key of ['a', 'b']) known.add('acme alice', key);
  known.delete('acme alice', 'other');
  t.same(known.of('acme alice'), ['b', 'a']);
  known.delete('acme alice', 'b');
  t.same(known.of('acme alice'), ['a']);
  known.delete('acme alice', 'a');
  t.same(known.of('acme alice'), []);
});
