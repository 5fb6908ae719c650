/**
 * A node of a push job, which is one server in one job: what becomes of it when something happens.
 * Pure. docs/design/push-jobs.md compares it with the specification's table (5.7.2).
 *
 *     new ──voted──▶ ready ──it gets its task──▶ starting ──started──▶ running ──succeeded, failed, …──▶ end
 *      └── an end: it votes no, is down, …  └── an end: aborted, …  └── an end: its start is refused, …
 *
 * The statements that change nodes change hundreds at once, so they decide in SQL:
 * `cnapi_next_push_node` and its neighbours in `migrations/001-push-jobs.sql` say the same, and
 * `test/control/push/rules-in-sql.test.ts` compares all of it.
 *
 * An ended node leaves its server in rehab, unless the agent itself has said that it has nothing
 * more to do with the job: it withdrew its vote, or reported the end of a command that had started.
 */
import type { NODE_STATUSES } from '../../protocol/api/push-jobs.ts';
import { type NodeReason, TASK_REASONS, type TaskReason } from '../../protocol/push.ts';

/** Those of OPEN_NODE_STATUSES may change; the others are final. */
export type NodeState = (typeof NODE_STATUSES)[number];

/** Where a node is that has not ended. `starting`: it is `ready` and has its task. */
export type NodeStage = 'new' | 'ready' | 'starting' | 'running';

/** What happens to a node. All but those without a reason are the reason of what becomes of it. */
export type NodeEvent = (typeof EVENTS_WITHOUT_REASON)[number] | NodeReason;

/** The agent votes `ready` and takes part; its command starts; it ends with 0, or otherwise. */
export const EVENTS_WITHOUT_REASON = ['voted', 'started', 'succeeded', 'failed'] as const;

type Row = Readonly<Partial<Record<NodeStage, NodeState>>>;

/** It votes no, now or after it had voted `ready`. */
const votesNo: Row = { new: 'nacked', ready: 'unavailable' };
const cannotVote: Row = { new: 'unavailable', ready: 'unavailable' };
/** If its command has begun, nobody knows how far it came. */
const startRefused: Row = { starting: 'unavailable', running: 'crashed' };
const taskCancelled: Row = { starting: 'was_ready', running: 'aborted' };
const taskEnded = (as: NodeState): Row => ({ starting: as, running: as });

/** By event and stage. What is not here cannot happen. */
const steps: Readonly<Record<NodeEvent, Row>> = {
  voted: { new: 'ready' },
  started: { starting: 'running', running: 'running' },
  succeeded: taskEnded('succeeded'),
  failed: taskEnded('failed'),
  // The agent is in another job, or another job has its server.
  busy: votesNo,
  'not-allowed': votesNo,
  'bad-options': votesNo,
  paused: votesNo,
  stopping: cannotVote,
  'waited-too-long': cannotVote,
  unsupported: cannotVote,
  refused: cannotVote,
  // The caller may not run commands there.
  'permission-denied': { new: 'failed' },
  // The server is `unknown`; its agent is another process than the one that voted.
  down: { new: 'unavailable', ready: 'unavailable', starting: 'unavailable', running: 'crashed' },
  restarted: { ready: 'unavailable', starting: 'unavailable', running: 'crashed' },
  // The voting is over.
  'no-vote': { new: 'unavailable' },
  // A caller aborts this node. One that has its task is cancelled instead, as when the job is aborted.
  aborted: { new: 'unavailable', ready: 'was_ready' },
  'job-ended': { new: 'unavailable', ready: 'was_ready' },
  // The job ends although the node has not.
  'given-up': { new: 'unavailable', ready: 'was_ready', starting: 'was_ready', running: 'aborted' },
  // How its task has ended.
  TaskTimeout: taskEnded('timed_out'),
  Aborted: taskCancelled,
  Cancelled: taskCancelled,
  AgentStopped: taskEnded('aborted'),
  StartRefused: startRefused,
  NotTaken: startRefused,
  AgentPaused: startRefused,
  AgentFull: startRefused,
  UnknownTask: startRefused,
  TaskError: taskEnded('failed'),
  SpawnFailed: taskEnded('failed'),
  InvalidParameters: taskEnded('failed'),
  AgentRestarted: taskEnded('crashed'),
  OutcomeUnknown: taskEnded('crashed'),
};

/** Nodes that had voted have timed out if the job ends because its time is over. */
const ENDS_WITH_JOB: readonly NodeEvent[] = ['job-ended', 'given-up', 'Aborted', 'Cancelled'];

/**
 * The state after an event; undefined if the event cannot happen in this stage. `isLate`: the job
 * ends because its time is over. In SQL: cnapi_next_push_node.
 */
export function nextStateOf(stage: NodeStage, event: NodeEvent, isLate: boolean): NodeState | undefined {
  const next = steps[event][stage];
  const timesOut = isLate && next !== undefined && stage !== 'new' && ENDS_WITH_JOB.includes(event);
  return timesOut ? 'timed_out' : next;
}

/** In SQL: cnapi_push_node_reason. */
export function reasonOfEvent(event: NodeEvent): NodeReason | null {
  const isReason = (one: NodeEvent): one is NodeReason => !EVENTS_WITHOUT_REASON.some((other) => other === one);
  return isReason(event) ? event : null;
}

/** What is known of the task of a node. */
export interface TaskProgress {
  hasEnded: boolean;
  outcome: 'complete' | 'failure' | null;
  exitCode: number | null;
  errorCode: string | null;
}

/**
 * What a task that has started, or has ended, means for its node. Only 0 is a success: without a
 * code nobody knows how the command ended. In SQL: cnapi_push_node_event.
 */
export function eventOfTask({ hasEnded, outcome, exitCode, errorCode }: TaskProgress): NodeEvent {
  if (!hasEnded) return 'started';
  if (outcome === 'complete') return exitCode === 0 ? 'succeeded' : 'failed';
  return TASK_REASONS.find((code): code is TaskReason => code === errorCode) ?? 'OutcomeUnknown';
}
