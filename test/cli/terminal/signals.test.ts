import t from 'tap';
import { parseSignalMask } from '../../../lib/cli/terminal/signals.ts';

t.test('the signals ignored at start are read from the mask', (t) => {
  const rows: [string | undefined, string[]][] = [
    ['00000001', ['SIGHUP']],
    ['00000002', ['SIGINT']],
    ['00004003', ['SIGINT', 'SIGTERM', 'SIGHUP']],
    ['ffffbffc', []],
    ['', []],
    ['nonsense', []],
    [undefined, []],
  ];
  for (const [mask, signals] of rows) t.strictSame(parseSignalMask(mask), signals, mask ?? 'no mask');
  t.end();
});
