/** What instances and agents both know of push jobs (docs/design/push-jobs.md). */

/** In the hello of an agent that takes part in push jobs. */
export const PUSH_CAPABILITY = 'push-jobs';

/** The task that runs a job's command on one server. Its params are `{job}`. */
export const PUSH_TASK = 'push_command';

/** Codes with which an agent's run of a push job ends, beside those of all tasks. */
export const pushEnds = {
  /** The agent did not wait for this job: nothing ran. */
  startRefused: 'StartRefused',
  /** An abort of the job ended the command. */
  aborted: 'Aborted',
} as const;
