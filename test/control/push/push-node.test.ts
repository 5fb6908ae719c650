/** The specification's table for a node in a job (5.7.2), row by row, and what this system adds. */

import { readFileSync } from 'node:fs';
import t from 'tap';
import {
  EVENTS_WITHOUT_REASON,
  eventOfTask,
  type NodeEvent,
  type NodeStage,
  type NodeState,
  nextStateOf,
  reasonOfEvent,
} from '../../../lib/control/push/push-node.ts';
import { NODE_REASONS, type NodeReason, TASK_REASONS, VOTE_REASONS } from '../../../lib/protocol/push.ts';

type Next = [NodeState, NodeReason | null] | 'cannot happen';

/** READY of the specification is `ready` and `starting`, EXECUTING `running`. */
const specified: Record<string, [NodeStage, NodeEvent, Next]> = {
  'IDLE, the node reports ready: READY': ['new', 'voted', ['ready', null]],
  'IDLE, it reports anything else: it takes no part': ['new', 'busy', ['nacked', 'busy']],
  'READY, it reports that it executes this job: EXECUTING': ['starting', 'started', ['running', null]],
  'READY, it executes before it was given its task: it cannot': ['ready', 'started', 'cannot happen'],
  'READY, it reports that it is not ready any more: it leaves the job': [
    'ready',
    'stopping',
    ['unavailable', 'stopping'],
  ],
  'READY, it is another process: it leaves the job': ['ready', 'restarted', ['unavailable', 'restarted']],
  'READY, the job is ABORTING or FINISHED: it leaves the job': ['ready', 'job-ended', ['was_ready', 'job-ended']],
  'READY with its task, the job is ABORTING: its task is cancelled': ['starting', 'job-ended', 'cannot happen'],
  'READY with its task, that was cancelled: it leaves the job': ['starting', 'Cancelled', ['was_ready', 'Cancelled']],
  'EXECUTING, it reports that it has executed this: it has ended': ['running', 'succeeded', ['succeeded', null]],
  'EXECUTING, it reports that the command failed: it has ended': ['running', 'failed', ['failed', null]],
  'EXECUTING, it is ready for another job: it cannot, a server is in one job at a time': [
    'running',
    'voted',
    'cannot happen',
  ],
  'EXECUTING, it reports that it executes this: nothing': ['running', 'started', ['running', null]],
  'EXECUTING, it reports anything else: it leaves the job': ['running', 'restarted', ['crashed', 'restarted']],
  'EXECUTING, the job is ABORTING: its task is cancelled': ['running', 'job-ended', 'cannot happen'],
  'ABORTING, it reports that the command was ended: it has ended': ['running', 'Aborted', ['aborted', 'Aborted']],
  'ABORTING, the aborting timeout is over: it is given up': ['running', 'given-up', ['aborted', 'given-up']],
};

/** What a node does in the stages that it names, in their order. */
const STAGES: readonly NodeStage[] = ['new', 'ready', 'starting', 'running'];
type States = readonly [NodeState | '', NodeState | '', NodeState | '', NodeState | ''];
const votesNo: States = ['nacked', 'unavailable', '', ''];
const cannotVote: States = ['unavailable', 'unavailable', '', ''];
const refusesStart: States = ['', '', 'unavailable', 'crashed'];

const columns: Record<NodeEvent, States> = {
  voted: ['ready', '', '', ''],
  started: ['', '', 'running', 'running'],
  succeeded: ['', '', 'succeeded', 'succeeded'],
  failed: ['', '', 'failed', 'failed'],
  busy: votesNo,
  'not-allowed': votesNo,
  'bad-options': votesNo,
  paused: votesNo,
  stopping: cannotVote,
  'waited-too-long': cannotVote,
  unsupported: cannotVote,
  refused: cannotVote,
  'permission-denied': ['failed', '', '', ''],
  down: ['unavailable', 'unavailable', 'unavailable', 'crashed'],
  restarted: ['', 'unavailable', 'unavailable', 'crashed'],
  'no-vote': ['unavailable', '', '', ''],
  aborted: ['unavailable', 'was_ready', '', ''],
  'job-ended': ['unavailable', 'was_ready', '', ''],
  'given-up': ['unavailable', 'was_ready', 'was_ready', 'aborted'],
  TaskTimeout: ['', '', 'timed_out', 'timed_out'],
  Aborted: ['', '', 'was_ready', 'aborted'],
  Cancelled: ['', '', 'was_ready', 'aborted'],
  AgentStopped: ['', '', 'aborted', 'aborted'],
  StartRefused: refusesStart,
  NotTaken: refusesStart,
  AgentPaused: refusesStart,
  AgentFull: refusesStart,
  UnknownTask: refusesStart,
  TaskError: ['', '', 'failed', 'failed'],
  SpawnFailed: ['', '', 'failed', 'failed'],
  InvalidParameters: ['', '', 'failed', 'failed'],
  AgentRestarted: ['', '', 'crashed', 'crashed'],
  OutcomeUnknown: ['', '', 'crashed', 'crashed'],
};

for (const [name, [stage, event, next]] of Object.entries(specified))
  t.test(name, async (t) => {
    const state = nextStateOf(stage, event, false);
    t.same(state === undefined ? 'cannot happen' : [state, reasonOfEvent(event)], next);
  });

for (const event of [...EVENTS_WITHOUT_REASON, ...NODE_REASONS])
  t.test(`${event}: what becomes of a node in each stage`, async (t) =>
    t.same(
      STAGES.map((stage) => nextStateOf(stage, event, false) ?? ''),
      columns[event],
    ),
  );

t.test('if the time of the job is over, a node that had voted and ends with it has timed out', async (t) => {
  const late = (event: NodeEvent) => STAGES.map((stage) => nextStateOf(stage, event, true) ?? '');
  t.same(late('job-ended'), ['unavailable', 'timed_out', '', '']);
  t.same(late('given-up'), ['unavailable', 'timed_out', 'timed_out', 'timed_out']);
  t.same(late('Aborted'), ['', '', 'timed_out', 'timed_out']);
  t.same(late('Cancelled'), ['', '', 'timed_out', 'timed_out']);
  for (const event of [...EVENTS_WITHOUT_REASON, ...NODE_REASONS])
    if (!['job-ended', 'given-up', 'Aborted', 'Cancelled'].includes(event)) t.same(late(event), columns[event], event);
});

t.test('a task says what happened to its node', async (t) => {
  const ended = { hasEnded: true, outcome: 'failure', exitCode: null, errorCode: null } as const;
  t.equal(eventOfTask({ ...ended, hasEnded: false, outcome: null }), 'started');
  t.equal(eventOfTask({ ...ended, outcome: 'complete', exitCode: 0 }), 'succeeded');
  t.equal(eventOfTask({ ...ended, outcome: 'complete' }), 'failed', 'nobody knows how the command ended');
  t.equal(eventOfTask({ ...ended, outcome: 'complete', exitCode: 3 }), 'failed');
  for (const code of TASK_REASONS) t.equal(eventOfTask({ ...ended, errorCode: code }), code);
  t.equal(eventOfTask(ended), 'OutcomeUnknown', 'an end without an error');
  for (const code of ['NewInLaterVersion', 'down', 'voted', ''])
    t.equal(eventOfTask({ ...ended, errorCode: code }), 'OutcomeUnknown', `a code of the agent: ${code}`);
});

t.test('each vote but ready, each end of a task, and each loss of the agent ends the node', async (t) => {
  const isEnd = (state: NodeState | undefined) => state !== undefined && !['new', 'ready', 'running'].includes(state);
  for (const reason of VOTE_REASONS)
    for (const stage of ['new', 'ready'] as const)
      t.ok(isEnd(nextStateOf(stage, reason, false)), `${reason}, ${stage}`);
  for (const reason of ['succeeded', 'failed', ...TASK_REASONS] as const)
    for (const stage of ['starting', 'running'] as const)
      t.ok(isEnd(nextStateOf(stage, reason, false)), `${reason}, ${stage}`);
  for (const stage of STAGES) t.ok(isEnd(nextStateOf(stage, 'down', false)), `down, ${stage}`);
  for (const stage of STAGES) t.ok(isEnd(nextStateOf(stage, 'given-up', false)), `given-up, ${stage}`);
});

t.test('the page of reasons explains each once', async (t) => {
  const page = readFileSync(new URL('../../../docs/push-node-reasons.md', import.meta.url), 'utf8');
  const rows = page.split('\n').filter((line) => line.startsWith('| `'));
  const explained = rows.flatMap((row) => [...(row.split('|')[1] ?? '').matchAll(/`([^`]+)`/g)].map(([, one]) => one));
  t.same(explained.sort(), [...NODE_REASONS].sort());
});
