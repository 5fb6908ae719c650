/** The specification's table for a job (5.7.3), row by row, and what this system adds to it. */

import t from 'tap';
import {
  type CoordinatedJob,
  countQuorum,
  decideActions,
  type NodeCounts,
  type PushJobSnapshot,
  StartRateLimiter,
  toJobStatus,
} from '../../../lib/control/push/push-job.ts';
import { NODE_STATUSES, type NodeStatus } from '../../../lib/protocol/api/push/job-schemas.ts';

function view(
  job: Partial<CoordinatedJob>,
  counts: Partial<Record<NodeStatus, number>>,
  more: Partial<PushJobSnapshot> = {},
): PushJobSnapshot {
  const nodeCounts = Object.fromEntries(NODE_STATUSES.map((state) => [state, counts[state] ?? 0])) as NodeCounts;
  return {
    job: {
      state: 'voting',
      ending: undefined,
      isSoft: false,
      quorum: 8,
      abortRequested: undefined,
      concurrency: undefined,
      startRate: undefined,
      maxFailures: undefined,
      votingTimeoutMs: 60_000,
      runTimeoutMs: 300_000,
      abortTimeoutMs: 30_000,
      ...job,
    },
    nodeCounts,
    ticket: 'none',
    ticketTimeoutMs: 600_000,
    started: 0,
    toCancel: 0,
    toAbort: 0,
    toRelease: 0,
    outdatedTimeouts: 0,
    startBucketFullInMs: 0,
    ageMs: 1_000,
    stateMs: 1_000,
    ...more,
  };
}

/** The first of those that apply. */
const nextActionOf = (view: PushJobSnapshot) => [...decideActions(view)][0];

const rows: Record<string, [PushJobSnapshot, Record<string, unknown>]> = {
  'WAITING, its ticket is queued: it asks nobody': [
    view({ state: 'waiting' }, { new: 10 }, { ticket: 'queued' }),
    { do: 'wait', forMs: 599_000 },
  ],
  'WAITING, its ticket is active: it asks its agents': [
    view({ state: 'waiting' }, { new: 10 }, { ticket: 'active' }),
    { do: 'begin-voting' },
  ],
  'WAITING, a caller aborts it, although its ticket is active': [
    view({ state: 'waiting', abortRequested: 'soft' }, { new: 10 }, { ticket: 'active' }),
    { do: 'abort', ending: 'aborted', soft: false },
  ],
  'WAITING, its ticket has ended: it is aborted': [
    view({ state: 'waiting' }, { new: 10 }, { ticket: 'lost' }),
    { do: 'abort', ending: 'aborted' },
  ],
  'WAITING, for too long: it is timed out': [
    view({ state: 'waiting' }, { new: 10 }, { ticket: 'queued', stateMs: 600_000 }),
    { do: 'abort', ending: 'timed_out', reason: 'its ticket was not active within 600 s' },
  ],
  'WAITING, a moment before its time is over': [
    view({ state: 'waiting' }, { new: 10 }, { ticket: 'queued', stateMs: 599_999 }),
    { do: 'wait', forMs: 1 },
  ],
  'VOTING, a moment before its time is over': [
    view({ state: 'voting' }, { new: 10 }, { ageMs: 59_999 }),
    { do: 'wait', forMs: 1 },
  ],
  'EXECUTING, a moment before its time is over': [
    view({ state: 'running' }, { running: 10 }, { started: 10, stateMs: 299_999 }),
    { do: 'wait', forMs: 1 },
  ],
  'EXECUTING, a moment before the last node may vote no more': [
    view({ state: 'running' }, { new: 1, running: 8 }, { started: 8, ageMs: 59_999 }),
    { do: 'wait', forMs: 1 },
  ],
  'ABORTING, a moment before its time is over': [
    view({ state: 'aborting', ending: 'aborted' }, { running: 1 }, { started: 1, stateMs: 29_999 }),
    { do: 'wait', forMs: 1 },
  ],
  'WAITING, the time of the votes does not pass': [
    view({ state: 'waiting' }, { new: 10 }, { ticket: 'queued', stateMs: 300_000, ageMs: 300_000 }),
    { do: 'wait', forMs: 300_000 },
  ],
  'VOTING, its ticket is lost: nothing starts, although the quorum is ready': [
    view({}, { ready: 10 }, { ticket: 'lost' }),
    { do: 'abort', ending: 'aborted', soft: false },
  ],
  'EXECUTING, its ticket is lost: its commands are stopped': [
    view({ state: 'running' }, { running: 8 }, { started: 8, ticket: 'lost' }),
    { do: 'abort', ending: 'aborted', soft: false },
  ],
  'EXECUTING, its ticket is lost after the last command: it is complete': [
    view({ state: 'running' }, { succeeded: 8 }, { ticket: 'lost' }),
    { do: 'end', outcome: 'complete' },
  ],
  'ABORTING softly, its ticket is lost: its commands are stopped': [
    view({ state: 'aborting', ending: 'aborted', isSoft: true }, { running: 2 }, { started: 2, ticket: 'lost' }),
    { do: 'abort', soft: false },
  ],
  'VOTING, quorum success: it starts, although some have not voted': [view({}, { ready: 8, new: 2 }), { do: 'start' }],
  'VOTING, not enough votes yet: it waits until the voting is over': [
    view({}, { ready: 7, new: 3 }),
    { do: 'wait', forMs: 59_000 },
  ],
  'VOTING, just as many nodes as the quorum can still be ready: it waits': [
    view({ quorum: 10 }, { ready: 7, new: 3 }),
    { do: 'wait', forMs: 59_000 },
  ],
  'VOTING, one node less than the quorum can still be ready: it aborts': [
    view({ quorum: 11 }, { ready: 7, new: 3 }),
    { do: 'abort', ending: 'quorum_failed', reason: 'only 10 nodes could become ready; the quorum was 11' },
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
  'VOTING, a caller aborts some nodes: they leave before anything starts': [
    view({}, { ready: 8, new: 2 }, { toAbort: 1 }),
    { do: 'abort-nodes' },
  ],
  'VOTING, a caller aborts some nodes and the job: the job is aborted': [
    view({ abortRequested: 'hard' }, { ready: 8 }, { toAbort: 1 }),
    { do: 'abort', ending: 'aborted' },
  ],
  'VOTING, aborted nodes have left and the others are too few: quorum failure': [
    view({}, { ready: 7, was_ready: 1, unavailable: 2 }),
    { do: 'abort', ending: 'quorum_failed' },
  ],
  'EXECUTING, a caller aborts some nodes: the job goes on': [
    view({ state: 'running' }, { ready: 2, running: 6 }, { started: 6, toAbort: 3 }),
    { do: 'abort-nodes' },
  ],
  'EXECUTING, a caller aborts some nodes when too many have failed: the job is aborted': [
    view({ state: 'running', maxFailures: 0 }, { running: 7, failed: 1 }, { started: 7, toAbort: 1 }),
    { do: 'abort', ending: 'aborted', soft: true },
  ],
  'EXECUTING, its run timeout was changed: commands that run get it': [
    view({ state: 'running' }, { running: 6 }, { started: 6, outdatedTimeouts: 6 }),
    { do: 'change-timeouts' },
  ],
  'EXECUTING, its run timeout was changed and is over: it aborts': [
    view({ state: 'running', runTimeoutMs: 1 }, { running: 6 }, { started: 6, outdatedTimeouts: 6 }),
    { do: 'abort', ending: 'timed_out', soft: false },
  ],
  'EXECUTING, all nodes exited: it ends as complete, whether they succeeded or not': [
    view({ state: 'running' }, { succeeded: 5, failed: 2, crashed: 1 }),
    { do: 'end', outcome: 'complete' },
  ],
  'EXECUTING, a late joiner is ready: it starts': [
    view({ state: 'running' }, { ready: 1, running: 8 }, { started: 8 }),
    { do: 'start', limit: 1 },
  ],
  'EXECUTING, only nodes that are ready are left: they start': [
    view({ state: 'running' }, { ready: 1, succeeded: 7 }),
    { do: 'start', limit: 1 },
  ],
  'EXECUTING, only nodes without a vote are left: it waits for their votes': [
    view({ state: 'running' }, { new: 1, succeeded: 8 }),
    { do: 'wait', forMs: 59_000 },
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
    { do: 'start', limit: 1 },
  ],
  'VOTING, quorum success with a start rate: a first group starts': [
    view({ startRate: 20 }, { ready: 8 }),
    { do: 'start', limit: 2 },
  ],
  'VOTING, quorum success with a start rate below one: one starts': [
    view({ startRate: 0.1 }, { ready: 8 }),
    { do: 'start', limit: 1 },
  ],
  'EXECUTING, the start rate is used up: it waits until the next group may start': [
    view({ state: 'running', startRate: 20 }, { ready: 6, running: 2 }, { started: 2, startBucketFullInMs: 100 }),
    { do: 'wait', forMs: 100 },
  ],
  'EXECUTING, the start rate has room again: the next group starts': [
    view({ state: 'running', startRate: 20 }, { ready: 6, running: 2 }, { started: 2, startBucketFullInMs: 0 }),
    { do: 'start', limit: 2 },
  ],
  'EXECUTING, the start rate has room, the concurrency has less: that is what starts': [
    view({ state: 'running', startRate: 20, concurrency: 3 }, { ready: 6, running: 2 }, { started: 2 }),
    { do: 'start', limit: 1 },
  ],
  'EXECUTING, all have started: the start rate is nothing to wait for': [
    view({ state: 'running', startRate: 0.1 }, { running: 8 }, { started: 8, startBucketFullInMs: 10_000 }),
    { do: 'wait', forMs: 299_000 },
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
  'ABORTING, as a caller asked, some still run: it waits for them': [
    view({ state: 'aborting', ending: 'aborted', abortRequested: 'hard' }, { running: 1 }, { started: 1 }),
    { do: 'wait', forMs: 29_000 },
  ],
  'ABORTING, as a caller asked, aborting timeout: it ends whether they have or not': [
    view(
      { state: 'aborting', ending: 'aborted', abortRequested: 'hard' },
      { running: 1 },
      { started: 1, stateMs: 30_000 },
    ),
    { do: 'end', outcome: 'aborted' },
  ],
  'ABORTING, all its commands are cancelled: nodes to abort and other timeouts do not matter': [
    view({ state: 'aborting', ending: 'aborted' }, { running: 2 }, { started: 2, toAbort: 1, outdatedTimeouts: 2 }),
    { do: 'wait', forMs: 29_000 },
  ],
  'ABORTING softly, its commands run: they may end': [
    view(
      { state: 'aborting', ending: 'aborted', isSoft: true, abortRequested: 'soft' },
      { running: 3 },
      { started: 3, toCancel: 3 },
    ),
    { do: 'wait', forMs: 299_000 },
  ],
  'ABORTING, some commands have not been cancelled yet: they are, whichever instance goes on': [
    view({ state: 'aborting', ending: 'timed_out' }, { running: 9 }, { started: 9, toCancel: 4 }),
    { do: 'abort', ending: 'timed_out', soft: false },
  ],
  'ABORTING, nodes that have not started: they are released first, and commands may still end by themselves': [
    view(
      { state: 'aborting', ending: 'aborted', isSoft: true },
      { running: 1, ready: 2 },
      { started: 1, toRelease: 2 },
    ),
    { do: 'abort', ending: 'aborted', soft: true },
  ],
  'ABORTING, aborting timeout: it ends whether they have or not': [
    view({ state: 'aborting', ending: 'aborted' }, { running: 1 }, { started: 1, stateMs: 30_000 }),
    { do: 'end', outcome: 'aborted' },
  ],
  'ABORTING softly, a caller aborts some nodes: their commands are stopped, the others may end': [
    view({ state: 'aborting', ending: 'aborted', isSoft: true }, { running: 3 }, { started: 3, toAbort: 1 }),
    { do: 'abort-nodes' },
  ],
  'ABORTING softly, its run timeout was changed before: commands that run get it': [
    view({ state: 'aborting', ending: 'aborted', isSoft: true }, { running: 3 }, { started: 3, outdatedTimeouts: 3 }),
    { do: 'change-timeouts' },
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
  t.test(name, async (t) => t.match(nextActionOf(given), wanted));

const orders: Record<string, [PushJobSnapshot, string[]]> = {
  'VOTING, nodes to abort are locked: the others start': [
    view({}, { ready: 9, new: 1 }, { toAbort: 1 }),
    ['abort-nodes', 'start', 'wait'],
  ],
  'VOTING, nodes to abort are locked: the voting ends all the same': [
    view({}, { ready: 7, new: 3 }, { toAbort: 1, ageMs: 60_000 }),
    ['abort-nodes', 'abort'],
  ],
  'EXECUTING, nodes without a vote and nodes to abort are locked: the others start': [
    view({ state: 'running' }, { new: 1, ready: 2 }, { toAbort: 1, ageMs: 60_000 }),
    ['abort-nodes', 'close-voting', 'start', 'wait'],
  ],
  'EXECUTING, its run timeout is changed again and again: nodes that wait start all the same': [
    view({ state: 'running' }, { new: 1, ready: 2, running: 1 }, { started: 1, outdatedTimeouts: 1, ageMs: 60_000 }),
    ['close-voting', 'start', 'change-timeouts', 'wait'],
  ],
  'EXECUTING, execution timeout: it aborts, before it aborts some of its nodes': [
    view({ state: 'running' }, { running: 8 }, { started: 8, toAbort: 1, stateMs: 300_000 }),
    ['abort'],
  ],
  'ABORTING, nodes to release are locked: it does not end without them': [
    view({ state: 'aborting', ending: 'aborted' }, { ready: 1, succeeded: 7 }, { toRelease: 1 }),
    ['abort', 'wait'],
  ],
  'ABORTING, aborting timeout: it ends, although tasks to cancel are locked': [
    view({ state: 'aborting', ending: 'aborted' }, { running: 2 }, { started: 2, toCancel: 1, stateMs: 30_000 }),
    ['abort', 'end'],
  ],
};

for (const [name, [given, wanted]] of Object.entries(orders))
  t.test(name, async (t) =>
    t.same(
      [...decideActions(given)].map((action) => action.do),
      wanted,
    ),
  );

t.test('a job that waits looks again when its next deadline is due', async (t) => {
  const late = view({ state: 'running' }, { new: 1, running: 8 }, { started: 8, ageMs: 59_000, stateMs: 10_000 });
  t.same(nextActionOf(late), { do: 'wait', forMs: 1_000 }, 'the voting');
  const voted = view({ state: 'running' }, { running: 8 }, { started: 8, ageMs: 59_000, stateMs: 10_000 });
  t.same(nextActionOf(voted), { do: 'wait', forMs: 290_000 }, 'the run');
});

t.test('the starts of a job keep its rate, also when another instance takes it over', async (t) => {
  const stored = (startBucketFullInMs: number) =>
    view({ state: 'running', startRate: 20 }, {}, { startBucketFullInMs });
  const { job } = stored(0);
  const first = new StartRateLimiter();
  t.equal(first.fullInMs(stored(0), 1_000), 0, 'nothing has started');
  first.charge(job, 2, 1_000);
  t.equal(first.fullInMs(stored(0), 1_000), 100);
  t.equal(first.fullInMs(stored(0), 1_060), 40, 'counted on its own clock');
  t.equal(first.fullInMs(stored(0), 5_000), -3_900, 'long over');
  first.charge(job, 2, 5_000);
  t.equal(first.fullInMs(stored(0), 5_000), 100, 'time without starts allows no larger group');
  t.equal(new StartRateLimiter().fullInMs(stored(40), 9_000), 40, 'another instance goes on from what is stored');
  t.equal(new StartRateLimiter().fullInMs(stored(-3_000), 9_000), -3_000);
  t.equal(new StartRateLimiter().fullInMs(stored(3_600_000), 9_000), 100, "the database's clock was set back");
});

t.test('after the start rate was raised, the starts at the old one count as one group', async (t) => {
  const starts = new StartRateLimiter();
  const at = (startRate: number, now: number) => starts.fullInMs(view({ startRate }, {}), now);
  at(0.001, 1_000);
  starts.charge(view({ startRate: 0.001 }, {}).job, 1, 1_000);
  t.equal(at(0.001, 1_000), 1_000_000);
  t.equal(at(20, 2_000), 100);
  t.equal(at(20, 2_060), 40, 'once');
});

t.test('a quorum is a number of nodes, or a percentage rounded up', async (t) => {
  t.equal(countQuorum(3, 10), 3);
  t.equal(countQuorum({ percent: 80 }, 21), 17);
  t.equal(countQuorum({ percent: 100 }, 7), 7);
  t.equal(countQuorum({ percent: 10 }, 10), 1, 'not 2, although 0.1 * 10 is not exact');
  t.equal(countQuorum({ percent: 0.1 }, 21), 1);
});

t.test('an ended job shows its outcome, any other its state', async (t) => {
  t.equal(toJobStatus('running', null), 'running');
  t.equal(toJobStatus('ended', 'quorum_failed'), 'quorum_failed');
});
