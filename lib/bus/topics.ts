/** The topics in use and what is said on each. Every message is ids; whoever hears it reads the database. */

/** To the run that has authority: `{kind, …ids}`; see the InstanceMessage of whoever sends it. */
export const runTopic = (run: string): string => `run:${run}`;

/** These tasks have ended: `{ids}`. Heard by every instance that was ever waited on. */
export const TASK_ENDS_TOPIC = 'task-ends';

/** Something else happened to a task: `{id}`. Heard by instances with a follower for it. */
export const taskTopic = (taskId: string): string => `task:${taskId}`;

/** These tickets became active, ended or were deleted: `{ids}`. Heard by every instance that was ever waited on. */
export const TICKETS_TOPIC = 'tickets';

/** To whoever has room: `{server_uuid}`, there may be tasks queued for a server with an old agent. */
export const POSTS_TOPIC = 'posts';

/** What one instance says to the run that acts for a server. */
export type RunMessage =
  /** There may be queued work, or a cancel to send on, for this server. */
  | { kind: 'tasks'; server_uuid: string }
  /** The server's row has a higher epoch, or was removed: compare your session with it. */
  | { kind: 'roster'; server_uuid: string; epoch: number }
  /** Answer on `reply` only if the session of this epoch answers a probe sent after this message. */
  | { kind: 'probe'; server_uuid: string; epoch: number; reply: string };

/** What came on a run's topic, if it is one of the messages above; anything else is no reason to do anything. */
export function parseRunMessage(message: Record<string, unknown>): RunMessage | undefined {
  const { kind, server_uuid, epoch, reply } = message;
  if (typeof server_uuid !== 'string') return undefined;
  if (kind === 'tasks') return { kind, server_uuid };
  if (typeof epoch !== 'number') return undefined;
  if (kind === 'roster') return { kind, server_uuid, epoch };
  return kind === 'probe' && typeof reply === 'string' ? { kind, server_uuid, epoch, reply } : undefined;
}
