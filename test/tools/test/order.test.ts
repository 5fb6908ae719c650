import { globSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import { LONGEST, longestFirst } from '../../../tools/test/order.ts';
import { alternativesOf } from './alternatives.ts';

t.test('the longest files start first, the others follow by name', async (t) => {
  const files = ['test/b.test.ts', 'test/sim/replay.test.ts', 'test/a.test.ts', 'test/cli/commands.test.ts'];
  t.strictSame(longestFirst(files), [
    'test/sim/replay.test.ts',
    'test/cli/commands.test.ts',
    'test/a.test.ts',
    'test/b.test.ts',
  ]);
});

t.test('every file that shall start first exists', async (t) => {
  const root = path.resolve(import.meta.dirname, '../../..');
  for (const pattern of LONGEST.flatMap(alternativesOf)) t.ok(globSync(pattern, { cwd: root }).length > 0, pattern);
});
