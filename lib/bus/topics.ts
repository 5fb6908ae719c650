/** The topics in use and what is said on each. Every message is ids; whoever hears it reads the database. */

/** To the run that has authority: `{kind, …ids}`; see the InstanceMessage of whoever sends it. */
export const runTopic = (run: string): string => `run:${run}`;

/** A task changed: `{id}`. Heard by instances with a waiter or a follower for it. */
export const taskTopic = (taskId: string): string => `task:${taskId}`;

/** What one instance says to the run that acts for a server. */
export type RunMessage =
  /** There may be queued work, or a cancel to send on, for this server. */
  | { kind: 'tasks'; server_uuid: string }
  /** The server's row has a higher epoch, or was removed: compare your session with it. */
  | { kind: 'roster'; server_uuid: string; epoch: number }
  /** Answer on `reply` only if the session of this epoch answers a probe sent after this message. */
  | { kind: 'probe'; server_uuid: string; epoch: number; reply: string };
