/** What instances and agents both know of push jobs (docs/design/push-jobs.md). */

/** In the hello of an agent that takes part in push jobs. */
export const PUSH_CAPABILITY = 'push-jobs';

/**
 * In the hello of an agent that takes a changed timeout of a command that it waits for or runs. An
 * agent without it ends the command at the limit with which it was started.
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

/** Of the nodes of push jobs that have not ended. In SQL: cnapi_is_push_node_open. */
export const OPEN_NODE_STATUSES: readonly string[] = ['new', 'ready', 'running'];
