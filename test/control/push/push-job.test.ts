/** The specification's table for a job (5.7.3), row by row, and what this system adds to it. */

import t from 'tap';
import {
  type JobView,
  type NodeState,
  nextAction,
  type PushJob,
  quorumOf,
  statusOf,
  type Tally,
} from '../../../lib/control/push/push-job.ts';
import { NODE_STATUSES } from '../../../lib/protocol/api/push-jobs.ts';

function view(job: Partial<PushJob>, counts: Partial<Record<NodeState, number>>, more: Partial<JobView> = {}): JobView {
  const tally = Object.fromEntries(NODE_STATUSES.map((state) => [state, counts[state] ?? 0])) as Tally;
  return {
    job: {
      state: 'voting',
      ending: undefined,
      isSoft: false,
      quorum: 8,
      abortRequested: undefined,
      concurrency: undefined,
      maxFailures: undefined,
      votingTimeoutMs: 60_000,
      runTimeoutMs: 300_000,
      abortTimeoutMs: 30_000,
      ...job,
    },
    tally,
    started: 0,
    toCancel: 0,
    ageMs: 1_000,
    stateMs: 1_000,
    ...more,
  };
}

const rows: Record<string, [JobView, Record<string, unknown>]> = {
  'VOTING, quorum success: it starts, although some have not voted': [view({}, { ready: 8, new: 2 }), { do: 'start' }],
  'VOTING, not enough votes yet: it waits until the voting is over': [
    view({}, { ready: 7, new: 3 }),
    { do: 'wait', forMs: 59_000 },
  ],
  'VOTING, quorum failure: it aborts before all have voted': [
    view({}, { ready: 6, new: 1, nacked: 2, unavailable: 1 }),
    { do: 'abort', ending: 'quorum_failed' },
  ],
  'VOTING, there are no nodes: quorum failure': [view({ quorum: 1 }, {}), { do: 'abort', ending: 'quorum_failed' }],
  'VOTING, voting timeout: it aborts': [
    view({}, { ready: 7, new: 3 }, { ageMs: 60_000 }),
    { do: 'abort', ending: 'quorum_failed' },
  ],
  'VOTING, a caller aborts it': [view({ abortRequested: 'hard' }, { ready: 8 }), { do: 'abort', ending: 'aborted' }],
  'EXECUTING, all nodes exited: it ends as complete, whether they succeeded or not': [
    view({ state: 'running' }, { succeeded: 5, failed: 2, crashed: 1 }),
    { do: 'end', outcome: 'complete' },
  ],
  'EXECUTING, a late joiner is ready: it starts': [
    view({ state: 'running' }, { ready: 1, running: 8 }, { started: 8 }),
    { do: 'start', most: 1 },
  ],
  'EXECUTING, a started node counts as started before its start is known': [
    view({ state: 'running' }, { ready: 3, running: 5 }, { started: 8 }),
    { do: 'wait' },
  ],
  'EXECUTING, the concurrency is reached: the others wait': [
    view({ state: 'running', concurrency: 3 }, { ready: 5, running: 3 }, { started: 3 }),
    { do: 'wait' },
  ],
  'EXECUTING, a node has ended below the concurrency: one more starts': [
    view({ state: 'running', concurrency: 3 }, { ready: 4, running: 2, succeeded: 2 }, { started: 2 }),
    { do: 'start', most: 1 },
  ],
  'EXECUTING, nodes without a vote when the voting is over: they are left out': [
    view({ state: 'running' }, { new: 2, running: 8 }, { started: 8, ageMs: 60_000 }),
    { do: 'close-voting' },
  ],
  'EXECUTING, execution timeout: it aborts': [
    view({ state: 'running' }, { running: 8 }, { started: 8, stateMs: 300_000 }),
    { do: 'abort', ending: 'timed_out', soft: false },
  ],
  'EXECUTING, a caller aborts it softly: what runs may end': [
    view({ state: 'running', abortRequested: 'soft' }, { running: 2, ready: 6 }, { started: 2 }),
    { do: 'abort', ending: 'aborted', soft: true },
  ],
  'EXECUTING, as many nodes have failed as may: it goes on': [
    view({ state: 'running', maxFailures: 2 }, { running: 6, failed: 1, crashed: 1 }, { started: 6 }),
    { do: 'wait' },
  ],
  'EXECUTING, more nodes have failed than may: it aborts, and what runs may end': [
    view({ state: 'running', maxFailures: 2 }, { running: 5, failed: 1, crashed: 1, timed_out: 1 }, { started: 5 }),
    { do: 'abort', ending: 'aborted', soft: true },
  ],
  'ABORTING, all nodes exited: it ends with the outcome it was to have': [
    view({ state: 'aborting', ending: 'timed_out' }, { timed_out: 8 }),
    { do: 'end', outcome: 'timed_out' },
  ],
  'ABORTING, some still run: it waits for them': [
    view({ state: 'aborting', ending: 'aborted' }, { running: 1 }, { started: 1 }),
    { do: 'wait', forMs: 29_000 },
  ],
  'ABORTING, some commands have not been cancelled yet: they are, whichever instance goes on': [
    view({ state: 'aborting', ending: 'timed_out' }, { running: 9 }, { started: 9, toCancel: 4 }),
    { do: 'abort', ending: 'timed_out', soft: false },
  ],
  'ABORTING, aborting timeout: it ends whether they have or not': [
    view({ state: 'aborting', ending: 'aborted' }, { running: 1 }, { started: 1, stateMs: 30_000 }),
    { do: 'end', outcome: 'aborted' },
  ],
  'ABORTING softly, a caller now wants a hard end: the commands are stopped': [
    view(
      { state: 'aborting', ending: 'aborted', isSoft: true, abortRequested: 'hard' },
      { running: 1 },
      { started: 1 },
    ),
    { do: 'abort', ending: 'aborted', soft: false },
  ],
  'ABORTING softly, the run timeout is over: the commands are stopped': [
    view({ state: 'aborting', ending: 'aborted', isSoft: true }, { running: 1 }, { started: 1, stateMs: 300_000 }),
    { do: 'abort', ending: 'aborted', soft: false },
  ],
  'FINISHED: nothing happens any more': [view({ state: 'ended' }, { new: 1 }, { ageMs: 1e9 }), { do: 'wait' }],
};

for (const [name, [given, wanted]] of Object.entries(rows))
  t.test(name, async (t) => t.match(nextAction(given), wanted));

t.test('a job that waits looks again when its next deadline is due', async (t) => {
  const late = view({ state: 'running' }, { new: 1, running: 8 }, { started: 8, ageMs: 59_000, stateMs: 10_000 });
  t.same(nextAction(late), { do: 'wait', forMs: 1_000 }, 'the voting');
  const voted = view({ state: 'running' }, { running: 8 }, { started: 8, ageMs: 59_000, stateMs: 10_000 });
  t.same(nextAction(voted), { do: 'wait', forMs: 290_000 }, 'the run');
});

t.test('a quorum is a number of nodes, or a percentage rounded up', async (t) => {
  t.equal(quorumOf(3, 10), 3);
  t.equal(quorumOf({ percent: 80 }, 21), 17);
  t.equal(quorumOf({ percent: 100 }, 7), 7);
  t.equal(quorumOf({ percent: 10 }, 10), 1, 'not 2, although 0.1 * 10 is not exact');
  t.equal(quorumOf({ percent: 0.1 }, 21), 1);
});

t.test('an ended job shows its outcome, any other its state', async (t) => {
  t.equal(statusOf('running', null), 'running');
  t.equal(statusOf('ended', 'quorum_failed'), 'quorum_failed');
});
