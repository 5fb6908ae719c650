/** The specification's table for a node (5.6), row by row. */
import t from 'tap';
import { type NodeEvent, type NodeState, type NodeStep, stepNode } from '../../../lib/agent/push/node-state.ts';

const mine = 'aaaaaaaa-0000-4000-8000-000000000000';
const other = 'bbbbbbbb-0000-4000-8000-000000000000';
const ready: NodeState = { name: 'ready' };
const waiting: NodeState = { name: 'waiting', jobId: mine };
const running: NodeState = { name: 'running', jobId: mine };
const terminating: NodeState = { name: 'terminating', jobId: mine };
const ack: NodeStep['effects'][number] = { do: 'vote', jobId: mine, ready: true };
const nack = { do: 'vote', jobId: other, ready: false, reason: 'busy', busyWith: mine } as const;
const aborted = (jobId: string) => ({ do: 'say-aborted', jobId }) as const;

const rows: Record<string, [NodeState, NodeEvent, NodeState, NodeStep['effects']]> = {
  'Startup, what the former process left is ended, after a clean shutdown, a job or a crash': [
    { name: 'startup' },
    { type: 'recovered' },
    { name: 'pending' },
    [],
  ],
  'Startup, a message waits until it is over': [
    { name: 'startup' },
    { type: 'prepare', jobId: mine },
    { name: 'startup' },
    [],
  ],
  'Pending, the server is there': [{ name: 'pending' }, { type: 'session' }, ready, []],
  'Ready, PREPARE: ACK': [ready, { type: 'prepare', jobId: mine }, waiting, [ack]],
  'Ready, PREPARE of what it may not run: NACK': [
    ready,
    { type: 'prepare', jobId: mine, refusal: 'not-allowed' },
    ready,
    [{ do: 'vote', jobId: mine, ready: false, reason: 'not-allowed' }],
  ],
  'Ready, ABORT: ABORTED (from ready)': [ready, { type: 'abort', jobId: mine }, ready, [aborted(mine)]],
  'Ready, START: ERROR, start failed': [ready, { type: 'start', jobId: mine }, ready, []],
  'Waiting, PREPARE of the same job: ACK': [waiting, { type: 'prepare', jobId: mine }, waiting, [ack]],
  'Waiting, PREPARE of another job: NACK': [waiting, { type: 'prepare', jobId: other }, waiting, [nack]],
  'Waiting, ABORT: ABORTED (from waiting)': [waiting, { type: 'abort', jobId: mine }, ready, [aborted(mine)]],
  'Waiting, ABORT of another job: it stays': [waiting, { type: 'abort', jobId: other }, waiting, [aborted(other)]],
  'Waiting, START of the same job: it executes': [waiting, { type: 'start', jobId: mine }, running, []],
  'Waiting, START of another job: ERROR, start failed': [waiting, { type: 'start', jobId: other }, waiting, []],
  'Waiting, timeout of the ready period: ERROR, timeout': [
    waiting,
    { type: 'waited-too-long' },
    ready,
    [{ do: 'vote', jobId: mine, ready: false, reason: 'waited-too-long' }],
  ],
  'Waiting, the agent stops: it withdraws its vote': [
    waiting,
    { type: 'stop' },
    ready,
    [{ do: 'vote', jobId: mine, ready: false, reason: 'stopping' }],
  ],
  'Running, PREPARE: NACK': [running, { type: 'prepare', jobId: other }, running, [nack]],
  'Running, ABORT: it terminates; ABORTED follows when nothing runs any more': [
    running,
    { type: 'abort', jobId: mine },
    terminating,
    [{ do: 'terminate' }],
  ],
  'Running, ABORT of another job: it runs on': [running, { type: 'abort', jobId: other }, running, [aborted(other)]],
  'Running, START of the same job: ignored': [running, { type: 'start', jobId: mine }, running, []],
  'Running, START of another job: ERROR, cannot start': [running, { type: 'start', jobId: other }, running, []],
  'Running, the command has ended: the end of its task says how': [running, { type: 'exited' }, ready, []],
  'Terminating, PREPARE: NACK': [terminating, { type: 'prepare', jobId: other }, terminating, [nack]],
  'Terminating, ABORT: it is doing so': [terminating, { type: 'abort', jobId: mine }, terminating, []],
  'Terminating, START: ERROR, cannot start': [terminating, { type: 'start', jobId: mine }, terminating, []],
  'Terminating, the command has exited: ABORTED': [terminating, { type: 'exited' }, ready, [aborted(mine)]],
};

for (const [name, [state, event, next, effects]] of Object.entries(rows))
  t.test(name, async (t) => t.same(stepNode(state, event), { state: next, effects }));

const STATES: NodeState[] = [{ name: 'startup' }, { name: 'pending' }, ready, waiting, running, terminating];
const EVENTS: { readonly [Type in NodeEvent['type']]: NodeEvent & { type: Type } } = {
  recovered: { type: 'recovered' },
  session: { type: 'session' },
  prepare: { type: 'prepare', jobId: mine },
  start: { type: 'start', jobId: mine },
  abort: { type: 'abort', jobId: mine },
  'waited-too-long': { type: 'waited-too-long' },
  exited: { type: 'exited' },
  stop: { type: 'stop' },
};

t.test('an event that has no row in the table changes nothing', async (t) => {
  const hasRow = ({ name }: NodeState, { type }: NodeEvent) =>
    Object.values(rows).some(([state, event]) => state.name === name && event.type === type);
  for (const state of STATES)
    for (const event of Object.values(EVENTS))
      if (!hasRow(state, event)) t.same(stepNode(state, event), { state, effects: [] }, `${state.name}, ${event.type}`);
});
