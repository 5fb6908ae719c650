/** When the posts of dead runs may be ended. */
import t from 'tap';
import { DeadPostingRuns } from '../../../lib/control/legacy/dead-posting-runs.ts';

const LIMITS = { graceMs: 5_000, maxGapMs: 15_000 };
const stopped = { run: 'stopped', mayResumeUnderNewRun: false };
const lapsed = { run: 'lapsed', mayResumeUnderNewRun: true };

t.test('a poll ends the posts of runs that are dead long enough', async (t) => {
  const rows: [name: string, polls: (number | 'fails')[], ended: string[]][] = [
    ['a run that stopped: at once', [0], ['stopped']],
    ['a run that was declared dead: not before the grace is over', [0, 4_999], ['stopped']],
    ['a run that was declared dead: after the grace', [0, 5_000], ['stopped', 'lapsed']],
    ['none after failed polls, because no instance could take anything over', [0, 4_000, 'fails', 6_000], ['stopped']],
    ['failed polls restart the grace', [0, 'fails', 6_000, 11_000], ['stopped', 'lapsed']],
    ['none by an observer that was stopped itself', [0, 15_001], ['stopped']],
    ['a late poll counts', [0, 15_000], ['stopped', 'lapsed']],
  ];
  for (const [name, polls, ended] of rows) {
    const runs = new DeadPostingRuns(LIMITS);
    let last: string[] = [];
    for (const at of polls) {
      if (at === 'fails') runs.forget();
      else last = runs.seen([stopped, lapsed], at);
    }
    t.same(last, ended, name);
  }
});

t.test('a run that is missing from one poll counts as new in the next', async (t) => {
  const runs = new DeadPostingRuns(LIMITS);
  runs.seen([lapsed], 0);
  runs.seen([], 3_000);
  t.same(runs.seen([lapsed], 6_000), []);
  t.same(runs.seen([lapsed], 11_000), ['lapsed']);
});
