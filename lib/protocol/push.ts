/** What instances and agents both know of push jobs (docs/design/push-jobs.md). */

/** The capability of an agent that takes part in push jobs. */
export const PUSH_CAPABILITY = 'push-jobs';

/**
 * The capability of an agent that accepts another timeout for a command that it waits for or runs.
 * An agent without it ends the command at the timeout with which the command was started.
 */
export const PUSH_TIMEOUT_CAPABILITY = 'push-timeouts';

/** The task that runs a job's command on one server. Its params are `{job}`. */
export const PUSH_TASK = 'push_command';

/** Codes with which an agent's run of a push job ends, beside those of all tasks. */
export const pushEnds = {
  /** The agent did not wait for this job: nothing ran. */
  startRefused: 'StartRefused',
  /** An abort of the job ended the command. */
  aborted: 'Aborted',
} as const;

/**
 * A node of a push job has not ended while it has one of these. In SQL: cnapi_is_push_node_open.
 */
export const OPEN_NODE_STATUSES: readonly string[] = ['new', 'ready', 'running'];

/** Why an agent votes against a job, or withdraws its vote. */
const PUSH_REFUSALS = ['busy', 'not-allowed', 'bad-options', 'paused', 'stopping', 'waited-too-long'] as const;
export type PushRefusal = (typeof PUSH_REFUSALS)[number];

/**
 * Why a node does not vote `ready`, or no longer. `unsupported`: its agent does not know push jobs.
 * `refused`: for a reason that this version does not know; its message tells more.
 */
export const VOTE_REASONS = [...PUSH_REFUSALS, 'unsupported', 'refused'] as const;
export type VoteReason = (typeof VOTE_REASONS)[number];

/** Why a node has its status, apart from votes and ends of tasks. */
const FOUND_REASONS = [
  'permission-denied',
  'down',
  'restarted',
  'no-vote',
  'node-aborted',
  'job-ended',
  'given-up',
] as const;

/**
 * Codes of errors with which the task of a node ends. Another code counts as `OutcomeUnknown`; the
 * task has it.
 */
export const TASK_REASONS = [
  'TaskTimeout',
  pushEnds.aborted,
  'Cancelled',
  'AgentStopped',
  pushEnds.startRefused,
  'NotTaken',
  'AgentPaused',
  'AgentFull',
  'UnknownTask',
  'TaskError',
  'SpawnFailed',
  'InvalidParameters',
  'AgentRestarted',
  'OutcomeUnknown',
] as const;

/**
 * Why a node has its status. docs/push-node-reasons.md explains them, and the check of
 * `cnapi_push_nodes.reason` names them.
 */
export const NODE_REASONS = [...VOTE_REASONS, ...FOUND_REASONS, ...TASK_REASONS] as const;
export type NodeReason = (typeof NODE_REASONS)[number];
