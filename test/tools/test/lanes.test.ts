import { globSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import { COMPUTING, lanesOf, ZONES } from '../../../tools/test/lanes.ts';

t.test('each kind of file runs in a lane of its own, each lane in the given order', async (t) => {
  const lanes = lanesOf([
    'test/d.test.ts',
    'test/sim/b.test.ts',
    'test/faults/e.test.ts',
    'test/c.test.ts',
    'test/sim/a.test.ts',
    'test/cli/push/f.test.ts',
  ]);
  t.strictSame(
    lanes.map(({ name, files }) => [name, files]),
    [
      ['zones', ['test/faults/e.test.ts', 'test/cli/push/f.test.ts']],
      ['timed', ['test/d.test.ts', 'test/c.test.ts']],
      ['computing', ['test/sim/b.test.ts', 'test/sim/a.test.ts']],
    ],
  );
});

t.test('there is no lane without files', async (t) => {
  t.strictSame(
    lanesOf(['test/sim/a.test.ts']).map(({ name }) => name),
    ['computing'],
  );
  t.strictSame(lanesOf([]), []);
});

t.test('a file that only computes leaves the processor to the others, and may take long', async (t) => {
  const [zones, timed, computing] = lanesOf(['test/sim/a.test.ts', 'test/c.test.ts', 'test/faults/b.test.ts']);
  for (const served of [zones, timed]) {
    t.equal(served?.niceness, 0);
    t.ok((computing?.niceness ?? 0) > 0);
    t.ok((computing?.timeoutS ?? 0) > (served?.timeoutS ?? 0));
  }
});

t.test('every file of the two particular lanes exists', async (t) => {
  const root = path.resolve(import.meta.dirname, '../../..');
  for (const pattern of [...ZONES, ...COMPUTING]) t.ok(globSync(pattern, { cwd: root }).length > 0, pattern);
});
