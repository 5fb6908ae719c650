import { globSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import { LONG, select } from '../../../tools/test/long.ts';

const root = path.resolve(import.meta.dirname, '../../..');

t.test('npm test leaves out the long files and says which', async (t) => {
  const { args, left } = select([], { root, isWhole: false });
  t.same(
    args,
    LONG.map((pattern) => `--exclude=${pattern}`),
  );
  t.ok(left.length >= LONG.length);
  t.ok(left.includes('test/sim/defects.test.ts'), 'by name');
  for (const pattern of LONG) t.ok(globSync(pattern, { cwd: root }).length > 0, `${pattern} exists`);
});

t.test('CI, --all and named files leave out nothing', async (t) => {
  t.same(select([], { root, isWhole: true }), { args: [], left: [] });
  t.same(select(['--all'], { root, isWhole: false }), { args: [], left: [] });
  t.same(select(['test/upgrade/rolling.test.ts'], { root, isWhole: false }), {
    args: ['test/upgrade/rolling.test.ts'],
    left: [],
  });
});
