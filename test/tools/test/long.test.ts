import { globSync, mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import { LONG, select } from '../../../tools/test/long.ts';
import { alternativesOf } from './alternatives.ts';

const root = path.resolve(import.meta.dirname, '../../..');

const all = globSync('test/**/*.test.ts', { cwd: root, exclude: ['**/node_modules'] });

t.test('npm test leaves out the long files and says which', async (t) => {
  const { files, left, isNamed } = select([], { root, isWhole: false });
  t.notOk(isNamed);
  t.same([...files, ...left].sort(), all.sort(), 'each file runs or is named');
  t.ok(left.length >= LONG.length);
  t.ok(left.includes('test/sim/defects.test.ts'), 'by name');
  for (const pattern of LONG.flatMap(alternativesOf))
    t.ok(globSync(pattern, { cwd: root }).length > 0, `${pattern} exists`);
});

t.test('CI, --all and named files leave out nothing', async (t) => {
  const whole = { files: all.sort(), left: [], isNamed: false };
  t.same(select([], { root, isWhole: true }), whole);
  t.same(select(['--all'], { root, isWhole: false }), whole);
  const file = 'test/upgrade/rolling.test.ts';
  for (const name of [file, path.join(root, file), 'test/upgrade/roll*.test.ts'])
    t.same(select([name], { root, isWhole: false }), { files: [file], left: [], isNamed: true }, name);
  t.same(
    select(['test/upgrade'], { root, isWhole: false }).files,
    globSync('test/upgrade/*.test.ts', { cwd: root }).sort(),
  );
  t.throws(() => select(['test/none.test.ts'], { root, isWhole: false }), /no test file matches test\/none.test.ts/);
});

t.test('tests of installed packages are not run', async (t) => {
  const folder = t.testdir();
  const installed = path.join(folder, 'test/openapi/node_modules/zod');
  mkdirSync(installed, { recursive: true });
  writeFileSync(path.join(installed, 'zod.test.ts'), '');
  writeFileSync(path.join(folder, 'test/openapi/openapi.test.ts'), '');
  for (const given of [[], ['test/openapi']])
    t.same(select(given, { root: folder, isWhole: true }).files, ['test/openapi/openapi.test.ts']);
});
