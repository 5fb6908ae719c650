/**
 * What an agent does about push jobs: the specification's table for a node (5.6), row by row. Pure;
 * driven by `push-participant.ts`.
 *
 *     startup ──▶ pending ──first session──▶ ready ──prepare──▶ waiting ──start──▶ running
 *                                              ▲                  │                  │ │
 *                                              ├── abort, its time is over ──────────┘ │ │
 *                                              ├── the command has ended ──────────────┘ │
 *                                              └── it has exited ── terminating ◀── abort
 *
 * The time limit of a command is that of its task: the runner ends it, and it has exited.
 *
 * Other than there, an abort names its job. An abort of a job that the agent is not in is answered,
 * and changes nothing.
 */
import type { PushRefusal } from '../../protocol/push.ts';

export type NodeState =
  | { name: 'startup' | 'pending' | 'ready' }
  | { name: 'waiting' | 'running' | 'terminating'; jobId: string };

export type NodeEvent =
  /** What the former process left is ended, however that process ended. */
  | { type: 'recovered' }
  | { type: 'session' }
  /** `refusal`: why the agent cannot run the command, whatever its state is. */
  | { type: 'prepare'; jobId: string; refusal?: PushRefusal | undefined }
  | { type: 'start'; jobId: string }
  | { type: 'abort'; jobId: string }
  /** The start did not come in time. */
  | { type: 'waited-too-long' }
  /** Nothing of the command runs any more. */
  | { type: 'exited' }
  /** This process ends. */
  | { type: 'stop' };

export type NodeEffect =
  | { do: 'vote'; jobId: string; ready: true }
  | { do: 'vote'; jobId: string; ready: false; reason: PushRefusal; busyWith?: string }
  | { do: 'say-aborted'; jobId: string }
  /** The command must end now. */
  | { do: 'terminate' };

/**
 * After a start the command runs if the state is `running` with its job; otherwise the start is
 * refused.
 */
export interface NodeStep {
  state: NodeState;
  effects: NodeEffect[];
}

/** An event that has no row in the table changes nothing. */
export function stepNode(state: NodeState, event: NodeEvent): NodeStep {
  switch (state.name) {
    case 'startup':
      // The ends of what the former process ran are in the journal, and are sent from there.
      return event.type === 'recovered' ? to({ name: 'pending' }) : to(state);
    case 'pending':
      return event.type === 'session' ? to({ name: 'ready' }) : to(state);
    case 'ready':
      return whileReady(state, event);
    case 'waiting':
      return whileWaiting(state, event);
    case 'running':
      return whileRunning(state, event);
    case 'terminating':
      return whileTerminating(state, event);
    default:
      return state satisfies never;
  }
}

type InJob = Extract<NodeState, { jobId: string }>;

function whileReady(state: NodeState, event: NodeEvent): NodeStep {
  switch (event.type) {
    case 'prepare': {
      const { jobId, refusal } = event;
      if (refusal !== undefined) return to(state, { do: 'vote', jobId, ready: false, reason: refusal });
      return to({ name: 'waiting', jobId }, { do: 'vote', jobId, ready: true });
    }
    case 'abort':
      return to(state, { do: 'say-aborted', jobId: event.jobId });
    default:
      return to(state);
  }
}

function whileWaiting(state: InJob, event: NodeEvent): NodeStep {
  const { jobId } = state;
  switch (event.type) {
    case 'prepare':
      return event.jobId === jobId ? to(state, { do: 'vote', jobId, ready: true }) : busy(state, event.jobId);
    case 'abort':
      if (event.jobId !== jobId) return notMine(state, event.jobId);
      return to({ name: 'ready' }, { do: 'say-aborted', jobId });
    case 'start':
      return event.jobId === jobId ? to({ name: 'running', jobId }) : to(state);
    case 'waited-too-long':
      return to({ name: 'ready' }, { do: 'vote', jobId, ready: false, reason: 'waited-too-long' });
    case 'stop':
      return to({ name: 'ready' }, { do: 'vote', jobId, ready: false, reason: 'stopping' });
    default:
      return to(state);
  }
}

function whileRunning(state: InJob, event: NodeEvent): NodeStep {
  const { jobId } = state;
  switch (event.type) {
    case 'prepare':
      return busy(state, event.jobId);
    case 'abort':
      if (event.jobId !== jobId) return notMine(state, event.jobId);
      return to({ name: 'terminating', jobId }, { do: 'terminate' });
    case 'exited':
      return to({ name: 'ready' });
    default:
      return to(state);
  }
}

function whileTerminating(state: InJob, event: NodeEvent): NodeStep {
  switch (event.type) {
    case 'prepare':
      return busy(state, event.jobId);
    case 'abort':
      return event.jobId === state.jobId ? to(state) : notMine(state, event.jobId);
    case 'exited':
      return to({ name: 'ready' }, { do: 'say-aborted', jobId: state.jobId });
    default:
      return to(state);
  }
}

const to = (state: NodeState, ...effects: NodeEffect[]): NodeStep => ({ state, effects });

const busy = (state: InJob, jobId: string): NodeStep =>
  to(state, { do: 'vote', jobId, ready: false, reason: 'busy', busyWith: state.jobId });

const notMine = (state: NodeState, jobId: string): NodeStep => to(state, { do: 'say-aborted', jobId });
