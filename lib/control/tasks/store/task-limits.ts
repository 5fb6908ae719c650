/**
 * How many tasks a server may hold. Claims keep to these limits, and the sweep does not count a
 * task as refused while a limit holds it back.
 */

/** Maximum of unfinished tasks that an agent is given. Its journal holds more. */
export const MAX_CLAIMED_PER_SERVER = 4_000;

/** Params that a server may hold unaccepted. Its connection takes only a few times as much. */
export const MAX_UNACCEPTED_BYTES = 4 * 1024 * 1024;

/** Params of unfinished tasks of a server. An agent's journal refuses tasks beyond 64 MiB. */
export const MAX_HELD_BYTES = 48 * 1024 * 1024;

/** Limits of posts: tasks, and bytes of their params. */
export interface PostLimits {
  posts: number;
  bytes: number;
}

/**
 * Limits of the posts to one server at a time, over all instances. A legacy agent starts a process
 * for each immediately. A task that waits behind this many does not count as refused by its server.
 */
export const MAX_POSTS_OF_SERVER: PostLimits = { posts: 128, bytes: 16 * 1024 * 1024 };
