import t from 'tap';
import { ClaimProgress } from '../../../../lib/control/tasks/dispatch/claim-progress.ts';
import { DatabaseBusyError, DatabaseUnavailableError } from '../../../../lib/platform/errors.ts';
import { ManualClock } from '../../../support/manual-clock.ts';

t.test('a server whose row stays locked is claimed for less and less often', async (t) => {
  const clock = new ManualClock();
  const from = clock.now();
  const times: number[] = [];
  const progress = new ClaimProgress(clock, (servers) => {
    times.push(clock.now() - from);
    progress.heldUp([...servers, ...servers]);
  });
  progress.heldUp(['a']);
  await clock.advance(10_000);
  t.same(times, [50, 150, 350, 750, 1_550, 3_150, 6_350, 9_550]);
  progress.stop();
  t.equal(clock.timers, 0);
});

t.test('the pause is short again after a claim that was not held up, and for any other server', async (t) => {
  const clock = new ManualClock();
  const claimed: string[] = [];
  const progress = new ClaimProgress(clock, (servers) => claimed.push(...servers));
  progress.heldUp(['a']);
  await clock.advance(50);
  progress.heldUp(['a', 'b']);
  await clock.advance(50);
  t.same(claimed, ['a', 'b']);
  await clock.advance(50);
  t.same(claimed, ['a', 'b', 'a']);
  progress.answered(['a']);
  progress.heldUp(['a']);
  await clock.advance(50);
  t.same(claimed, ['a', 'b', 'a', 'a']);
});

t.test('a server without an answered claim in a whole period is found at its end, and then each time', (t) => {
  const progress = new ClaimProgress(new ManualClock(), () => undefined);
  progress.wanted(['a', 'b', 'c']);
  t.same(progress.endPeriod(), [], 'they were wanted in this period');
  progress.answered(['b']);
  progress.wanted(['c', 'd']);
  t.same(progress.endPeriod(), ['a', 'c']);
  progress.wanted(['b']);
  progress.heldUp(['a']);
  t.same(progress.endPeriod(), ['a', 'c', 'd'], 'a claim that a locked row holds up is not an answer');
  progress.stop();
  t.end();
});

t.test('only an error that no repetition helps, of one server alone, counts as an answer', (t) => {
  const progress = new ClaimProgress(new ManualClock(), () => undefined);
  const failures: [string[], Error][] = [
    [['slow'], new DatabaseBusyError('slow')],
    [['down'], new DatabaseUnavailableError()],
    [['refused', 'beside it'], new Error('refused')],
    [['refused alone'], new Error('refused')],
  ];
  progress.wanted(failures.flatMap(([servers]) => servers));
  progress.endPeriod();
  for (const [servers, error] of failures) t.throws(() => progress.failed(servers, error), error);
  t.same(progress.endPeriod(), ['slow', 'down', 'refused', 'beside it']);
  t.end();
});

t.test('a server whose claim was refused counts as answered until a claim fails for another reason', (t) => {
  const progress = new ClaimProgress(new ManualClock(), () => undefined);
  const unansweredPeriods = () => [progress.endPeriod(), progress.endPeriod()].flat();
  const fails = (error: Error) => t.throws(() => progress.failed(['a'], error), error);
  progress.wanted(['a']);
  fails(new Error('refused'));
  progress.wanted(['a']);
  t.same(unansweredPeriods(), [], 'it is still being repeated');
  fails(new DatabaseBusyError('slow'));
  t.same(unansweredPeriods(), ['a']);
  for (const waits of [
    () => progress.heldUp(['a']),
    () => t.throws(() => progress.failed(['a', 'b'], new DatabaseUnavailableError())),
  ]) {
    fails(new Error('refused'));
    waits();
    t.same(unansweredPeriods(), ['a'], 'a locked row, or a failure of several claims');
  }
  fails(new Error('refused'));
  progress.answered(['a']);
  progress.wanted(['a']);
  t.same(unansweredPeriods(), ['a'], 'after an answer it is like any other server');
  progress.stop();
  t.end();
});
