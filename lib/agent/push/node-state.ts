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
  | { name: 'waiting' | 'running' | 'terminating'; job: string };

export type NodeEvent =
  /** What the former process left is ended, however that process ended. */
  | { type: 'recovered' }
  | { type: 'session' }
  /** `refusal`: why the agent cannot run the command, whatever its state is. */
  | { type: 'prepare'; job: string; refusal?: PushRefusal | undefined }
  | { type: 'start'; job: string }
  | { type: 'abort'; job: string }
  /** The start did not come in time. */
  | { type: 'waited-too-long' }
  /** Nothing of the command runs any more. */
  | { type: 'exited' }
  /** This process ends. */
  | { type: 'stop' };

export type NodeEffect =
  | { do: 'vote'; job: string; ready: true }
  | { do: 'vote'; job: string; ready: false; reason: PushRefusal; busyWith?: string }
  | { do: 'say-aborted'; job: string }
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

type InJob = Extract<NodeState, { job: string }>;

function whileReady(state: NodeState, event: NodeEvent): NodeStep {
  switch (event.type) {
    case 'prepare': {
      const { job, refusal } = event;
      if (refusal !== undefined) return to(state, { do: 'vote', job, ready: false, reason: refusal });
      return to({ name: 'waiting', job }, { do: 'vote', job, ready: true });
    }
    case 'abort':
      return to(state, { do: 'say-aborted', job: event.job });
    default:
      return to(state);
  }
}

function whileWaiting(state: InJob, event: NodeEvent): NodeStep {
  const { job } = state;
  switch (event.type) {
    case 'prepare':
      return event.job === job ? to(state, { do: 'vote', job, ready: true }) : busy(state, event.job);
    case 'abort':
      if (event.job !== job) return notMine(state, event.job);
      return to({ name: 'ready' }, { do: 'say-aborted', job });
    case 'start':
      return event.job === job ? to({ name: 'running', job }) : to(state);
    case 'waited-too-long':
      return to({ name: 'ready' }, { do: 'vote', job, ready: false, reason: 'waited-too-long' });
    case 'stop':
      return to({ name: 'ready' }, { do: 'vote', job, ready: false, reason: 'stopping' });
    default:
      return to(state);
  }
}

function whileRunning(state: InJob, event: NodeEvent): NodeStep {
  const { job } = state;
  switch (event.type) {
    case 'prepare':
      return busy(state, event.job);
    case 'abort':
      if (event.job !== job) return notMine(state, event.job);
      return to({ name: 'terminating', job }, { do: 'terminate' });
    case 'exited':
      return to({ name: 'ready' });
    default:
      return to(state);
  }
}

function whileTerminating(state: InJob, event: NodeEvent): NodeStep {
  switch (event.type) {
    case 'prepare':
      return busy(state, event.job);
    case 'abort':
      return event.job === state.job ? to(state) : notMine(state, event.job);
    case 'exited':
      return to({ name: 'ready' }, { do: 'say-aborted', job: state.job });
    default:
      return to(state);
  }
}

const to = (state: NodeState, ...effects: NodeEffect[]): NodeStep => ({ state, effects });

const busy = (state: InJob, job: string): NodeStep =>
  to(state, { do: 'vote', job, ready: false, reason: 'busy', busyWith: state.job });

const notMine = (state: NodeState, job: string): NodeStep => to(state, { do: 'say-aborted', job });
