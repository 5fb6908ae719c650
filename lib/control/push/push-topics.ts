/** What instances tell each other about push jobs. */

/**
 * Agents may have to be asked to take part in these jobs, or to forget them: `{ids}`. For all
 * instances.
 */
export const PUSH_ERRANDS_TOPIC = 'push-errands';

/** Something of these jobs has changed: `{ids}`. For those who carry them out or follow them. */
export const PUSH_CHANGES_TOPIC = 'push-changes';

/**
 * The feeds of these jobs have new events: `{ids}`. Every instance that has ever sent a feed is
 * subscribed.
 */
export const PUSH_FEED_TOPIC = 'push-feed';
