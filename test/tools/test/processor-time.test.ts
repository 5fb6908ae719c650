import { spawnSync } from 'node:child_process';
import t from 'tap';
import { durationOf, secondsOfChildren } from '../../../tools/test/processor-time.ts';

t.test('a duration is said in minutes and seconds', async (t) => {
  t.equal(durationOf(59_400), '59 s');
  t.equal(durationOf(60_000), '1 min 0 s');
  t.equal(durationOf(599_700), '10 min 0 s');
});

t.test('the processor time of children is read from /proc, whatever this program is called', async (t) => {
  const stat = '7 (a) b (c) R 1 7 7 0 -1 0 1 2 3 4 100 200 1250 250 20 0 11 0 5 6';
  t.equal(secondsOfChildren(stat), 15);
});

t.test('an ended child counts with its own children', { skip: process.platform !== 'linux' }, async (t) => {
  const before = secondsOfChildren() ?? 0;
  const busy = 'for (let used = 0; used < 300_000; used = process.cpuUsage().user) for (let i = 0; i < 1e6; i++);';
  spawnSync('sh', ['-c', '"$0" -e "$1"; true', process.execPath, busy]);
  t.ok((secondsOfChildren() ?? 0) - before >= 0.3, `${secondsOfChildren()} s`);
});
