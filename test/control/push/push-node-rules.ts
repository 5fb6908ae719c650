/**
 * The specification of a node in a push job (5.7.2), and what this system adds to it. The product
 * has these rules in SQL: `push-node.test.ts` compares, and the simulation checks what nodes do.
 */
import type { NodeStatus } from '../../../lib/protocol/api/push/job-schemas.ts';
import { NODE_REASONS, type NodeReason } from '../../../lib/protocol/push.ts';

/** Where a node is that has not ended. `starting`: it is `ready` and has its task. */
export const STAGES = ['new', 'ready', 'starting', 'running'] as const;
export type NodeStage = (typeof STAGES)[number];

/** The agent votes `ready` and takes part; its command starts; it ends with 0, or otherwise. */
const EVENTS_WITHOUT_REASON = ['voted', 'started', 'succeeded', 'failed'] as const;

/** What happens to a node. Others than these four are the reason of what becomes of it. */
export type NodeEvent = (typeof EVENTS_WITHOUT_REASON)[number] | NodeReason;
export const NODE_EVENTS: readonly NodeEvent[] = [...EVENTS_WITHOUT_REASON, ...NODE_REASONS];

type States = readonly [NodeStatus | '', NodeStatus | '', NodeStatus | '', NodeStatus | ''];
const votesNo: States = ['nacked', 'unavailable', '', ''];
const cannotVote: States = ['unavailable', 'unavailable', '', ''];
const refusesStart: States = ['', '', 'unavailable', 'crashed'];

/** What becomes of a node in each stage, in their order. */
const NEXT_STATES: Readonly<Record<NodeEvent, States>> = {
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
  'node-aborted': ['unavailable', 'was_ready', '', ''],
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

/** If the time of the job is over. The other events have the same states as in time. */
const LATE_STATES: Readonly<Partial<Record<NodeEvent, States>>> = {
  'job-ended': ['unavailable', 'timed_out', '', ''],
  'given-up': ['unavailable', 'timed_out', 'timed_out', 'timed_out'],
  Aborted: ['', '', 'timed_out', 'timed_out'],
  Cancelled: ['', '', 'timed_out', 'timed_out'],
};

/**
 * Null if the event cannot happen in this stage. `isLate`: the job ends because its time is over.
 */
export function nextStateOf(stage: NodeStage, event: NodeEvent, isLate: boolean): NodeStatus | null {
  const states = (isLate && LATE_STATES[event]) || NEXT_STATES[event];
  return states[STAGES.indexOf(stage)] || null;
}

export function reasonOfEvent(event: NodeEvent): NodeReason | null {
  return NODE_REASONS.find((reason) => reason === event) ?? null;
}
