import t from 'tap';
import { parseCount } from '../../../lib/cli/terminal/count.ts';

t.test('counts are whole numbers from 1 to a limit', async (t) => {
  t.equal(parseCount('1', '--limit'), 1);
  t.equal(parseCount('999999999', '--limit'), 999_999_999);
  t.equal(parseCount('7', '--limit', 7), 7);
  for (const bad of ['0', '', '-1', '1.5', '1e3', 'many', '1000000000'])
    t.throws(() => parseCount(bad, '--limit'), { message: `--limit ${bad} is not a whole number above 0` });
  t.throws(() => parseCount('8', '--limit', 7), { message: '--limit 8 is not a whole number from 1 to 7' });
});
