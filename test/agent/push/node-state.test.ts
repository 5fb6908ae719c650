/** The specification's table for a node (5.6), row by row. */
import t from 'tap';
import { type NodeEvent, type NodeState, type NodeStep, stepNode } from '../../../lib/agent/push/node-state.ts';

const mine = 'aaaaaaaa-0000-4000-8000-000000000000';
const other = 'bbbbbbbb-0000-4000-8000-000000000000';
const ready: NodeState = { name: 'ready' };
const waiting: NodeState = { name: 'waiting', job: mine };
const running: NodeState = { name: 'running', job: mine };
const terminating: NodeState = { name: 'terminating', job: mine };
const ack: NodeStep['effects'][number] = { name: 'vote', job: mine, ready: true };
const nack = { name: 'vote', job: other, ready: false, reason: 'busy', busyWith: mine } as const;
const aborted = (job: string) => ({ name: 'say-aborted', job }) as const;

const rows: Record<string, [NodeState, NodeEvent, NodeState, NodeStep['effects']]> = {
  'Startup, what the former process left is ended, after a clean shutdown, a job or a crash': [
    { name: 'startup' },
    { name: 'recovered' },
    { name: 'pending' },
    [],
  ],
  'Startup, a message waits until it is over': [
    { name: 'startup' },
    { name: 'prepare', job: mine },
    { name: 'startup' },
    [],
  ],
  'Pending, the server is there': [{ name: 'pending' }, { name: 'session' }, ready, []],
  'Ready, PREPARE: ACK': [ready, { name: 'prepare', job: mine }, waiting, [ack]],
  'Ready, PREPARE of what it may not run: NACK': [
    ready,
    { name: 'prepare', job: mine, refusal: 'not-allowed' },
    ready,
    [{ name: 'vote', job: mine, ready: false, reason: 'not-allowed' }],
  ],
  'Ready, ABORT: ABORTED (from ready)': [ready, { name: 'abort', job: mine }, ready, [aborted(mine)]],
  'Ready, START: ERROR, start failed': [ready, { name: 'start', job: mine }, ready, []],
  'Waiting, PREPARE of the same job: ACK': [waiting, { name: 'prepare', job: mine }, waiting, [ack]],
  'Waiting, PREPARE of another job: NACK': [waiting, { name: 'prepare', job: other }, waiting, [nack]],
  'Waiting, ABORT: ABORTED (from waiting)': [waiting, { name: 'abort', job: mine }, ready, [aborted(mine)]],
  'Waiting, ABORT of another job: it stays': [waiting, { name: 'abort', job: other }, waiting, [aborted(other)]],
  'Waiting, START of the same job: it executes': [waiting, { name: 'start', job: mine }, running, []],
  'Waiting, START of another job: ERROR, start failed': [waiting, { name: 'start', job: other }, waiting, []],
  'Waiting, timeout of the ready period: ERROR, timeout': [
    waiting,
    { name: 'waited-too-long' },
    ready,
    [{ name: 'vote', job: mine, ready: false, reason: 'waited-too-long' }],
  ],
  'Waiting, the agent stops: it withdraws its vote': [
    waiting,
    { name: 'stop' },
    ready,
    [{ name: 'vote', job: mine, ready: false, reason: 'stopping' }],
  ],
  'Running, PREPARE: NACK': [running, { name: 'prepare', job: other }, running, [nack]],
  'Running, ABORT: it terminates; ABORTED follows when nothing runs any more': [
    running,
    { name: 'abort', job: mine },
    terminating,
    [{ name: 'terminate' }],
  ],
  'Running, ABORT of another job: it runs on': [running, { name: 'abort', job: other }, running, [aborted(other)]],
  'Running, START of the same job: ignored': [running, { name: 'start', job: mine }, running, []],
  'Running, START of another job: ERROR, cannot start': [running, { name: 'start', job: other }, running, []],
  'Running, the command has ended: the end of its task says how': [running, { name: 'exited' }, ready, []],
  'Terminating, PREPARE: NACK': [terminating, { name: 'prepare', job: other }, terminating, [nack]],
  'Terminating, ABORT: it is doing so': [terminating, { name: 'abort', job: mine }, terminating, []],
  'Terminating, START: ERROR, cannot start': [terminating, { name: 'start', job: mine }, terminating, []],
  'Terminating, the command has exited: ABORTED': [terminating, { name: 'exited' }, ready, [aborted(mine)]],
};

for (const [name, [state, event, next, effects]] of Object.entries(rows))
  t.test(name, async (t) => t.same(stepNode(state, event), { state: next, effects }));

t.test('an event that has no row in the table changes nothing', async (t) => {
  for (const state of [ready, waiting, terminating])
    for (const event of [{ name: 'recovered' }, { name: 'session' }] as const)
      t.same(stepNode(state, event), { state, effects: [] }, `${state.name}, ${event.name}`);
});
