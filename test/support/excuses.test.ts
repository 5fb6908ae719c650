import t from 'tap';
import { Excuses } from './excuses.ts';

t.test('an excuse ends with the session under which the server is back', async (t) => {
  const excuses = new Excuses();
  excuses.begin('a', { from: 1000, epoch: 3 });
  t.equal(excuses.lastEpoch('a'), 3);
  excuses.end('a', { at: 5000, epoch: 5 });
  const rows: [what: string, at: number, epoch: number, isCovered: boolean][] = [
    ['before the fault', 999, 3, false],
    ['the session that the fault ended', 2000, 3, true],
    ['one that began and ended meanwhile', 4000, 4, true],
    ['the new session, just before it was seen', 4999, 5, false],
    ['the new session, just after it was seen', 5001, 5, false],
  ];
  for (const [what, at, epoch, isCovered] of rows) t.equal(excuses.coverChange('a', { at, epoch }), isCovered, what);
  t.equal(excuses.coverChange('b', { at: 2000, epoch: 3 }), false, 'another server');
});

t.test('an answer may be a little older than the return', async (t) => {
  const excuses = new Excuses();
  excuses.begin('a', { from: 1000, epoch: 3 });
  excuses.end('a', { at: 5000, epoch: 5 });
  t.equal(excuses.coverAnswer('a', 900, 1100), true, 'asked before the fault, answered after it');
  t.equal(excuses.coverAnswer('a', 5900, 6100), true);
  t.equal(excuses.coverAnswer('a', 6001, 6100), false);
  t.equal(excuses.coverAnswer('a', 900, 999), false);
});

t.test('a second fault is excused like the first', async (t) => {
  const excuses = new Excuses();
  excuses.begin('a', { from: 1000, epoch: 3 });
  excuses.end('a', { at: 5000, epoch: 5 });
  excuses.begin('a', { from: 6000, epoch: 5 });
  t.equal(excuses.lastEpoch('a'), 5);
  t.equal(excuses.coverChange('a', { at: 7000, epoch: 5 }), true);
  excuses.end('a', { at: 8000, epoch: 6 });
  t.equal(excuses.coverChange('a', { at: 7000, epoch: 5 }), true);
  t.equal(excuses.coverChange('a', { at: 8500, epoch: 6 }), false);
});
