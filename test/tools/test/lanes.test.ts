import { globSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import { CHAOS, COMPUTING, lanesOf } from '../../../tools/test/lanes.ts';

t.test('files that only compute run in a lane of their own, each lane in the given order', async (t) => {
  const lanes = lanesOf(['test/d.test.ts', 'test/sim/b.test.ts', 'test/c.test.ts', 'test/sim/a.test.ts']);
  t.strictSame(
    lanes.map(({ name, files }) => [name, files]),
    [
      ['timed', ['test/d.test.ts', 'test/c.test.ts']],
      ['computing', ['test/sim/b.test.ts', 'test/sim/a.test.ts']],
    ],
  );
});

t.test('chaos has a lane of its own, which starts when the other real processes have ended', async (t) => {
  const lanes = lanesOf(['test/c.test.ts', CHAOS, 'test/sim/a.test.ts']);
  t.strictSame(
    lanes.map(({ name, after, files }) => [name, after, files]),
    [
      ['timed', undefined, ['test/c.test.ts']],
      ['computing', undefined, ['test/sim/a.test.ts']],
      ['chaos', 'timed', [CHAOS]],
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
  const [timed, computing] = lanesOf(['test/sim/a.test.ts', 'test/c.test.ts']);
  t.equal(timed?.niceness, 0);
  t.ok((computing?.niceness ?? 0) > 0);
  t.ok((computing?.timeoutS ?? 0) > (timed?.timeoutS ?? 0));
});

t.test('every file with a lane of its own exists', async (t) => {
  const root = path.resolve(import.meta.dirname, '../../..');
  for (const pattern of [...COMPUTING, CHAOS]) t.ok(globSync(pattern, { cwd: root }).length > 0, pattern);
});
