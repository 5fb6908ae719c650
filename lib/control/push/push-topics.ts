/** What instances tell each other about push jobs. */

/**
 * Agents may have to be asked to take part in these jobs, or to forget them: `{ids}`. For all
 * instances.
 */
export const PUSH_ORDERS_TOPIC = 'push-orders';

/** Something of these jobs has changed: `{ids}`. For those who carry them out. */
export const PUSH_CHANGES_TOPIC = 'push-changes';

/**
 * These jobs, their nodes or their feeds have changed: `{ids}`. From their coordinators, for those
 * who follow them. Every instance that has ever had a follower is subscribed.
 */
export const PUSH_PROGRESS_TOPIC = 'push-progress';
