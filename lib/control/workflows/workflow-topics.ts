/** What instances tell each other about workflow jobs. */

/** A caller has changed these jobs: `{ids}`. For those who carry them out. */
export const WORKFLOW_CHANGES_TOPIC = 'workflow-changes';

/** A step of these jobs has ended: `{ids}`. For those who wait for them. */
export const WORKFLOW_ENDS_TOPIC = 'workflow-ends';
