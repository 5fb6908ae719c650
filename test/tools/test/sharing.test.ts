import t from 'tap';
import { processesOf } from '../../../tools/test/sharing.ts';

const named = (count: number) => Array.from({ length: count }, (_, number) => `test/a/${number}.test.ts`);

t.test('short files share a process, ten at most, in their order', async (t) => {
  const short = named(21);
  t.strictSame(processesOf(short), [short.slice(0, 10), short.slice(10, 20), short.slice(20)]);
  t.strictSame(processesOf([]), []);
});

t.test('long files, and files that are not in the folder of tests, run alone, and start first', async (t) => {
  const alone = [
    'test/sim/seeds-1.test.ts',
    'test/fuzz/fuzz.test.ts',
    'test/control/link/link.test.ts',
    '/tmp/x.test.ts',
  ];
  const short = named(2);
  t.strictSame(processesOf([...short, ...alone]), [...alone.map((file) => [file]), short]);
});
