/** The words for where tasks and tickets stand, as they are on the link and in the API. */

/** How an attempt of a task ends. */
export const TASK_OUTCOMES = ['complete', 'failure'] as const;

/** `active` is also a task that no agent has taken yet. */
export const TASK_STATUSES = ['active', ...TASK_OUTCOMES] as const;

export const TICKET_STATUSES = ['queued', 'active', 'finished', 'expired'] as const;
