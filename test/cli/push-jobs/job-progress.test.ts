/** How a push job is summed up for people. */
import t from 'tap';
import { describeProgress, nodeCountLines } from '../../../lib/cli/push-jobs/job-progress.ts';

t.test('the summary has a line for each state, with numbers below each other', (t) => {
  const job = { status: 'complete', counts: { succeeded: 14, nacked: 1, failed: 0 } } as never;
  t.same(nodeCountLines(job), [
    ' 1 node nacked: busy, not allowed or not able to run it',
    '14 nodes completed successfully',
  ]);
  t.equal(describeProgress(job), 'complete: 1 node nacked, 14 succeeded');
  t.end();
});

t.test('the summary does not refer to the table of nodes, which may not be shown', (t) => {
  const job = { status: 'complete', counts: { unavailable: 2, was_ready: 1 } } as never;
  t.same(nodeCountLines(job), ['2 nodes unavailable: did not take part', '1 node acknowledged, never started']);
  t.end();
});
