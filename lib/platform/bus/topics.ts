/**
 * The topics in use and their messages. Every message holds only ids; the receiver reads the
 * database.
 */

/** Messages to the run that has authority: `{kind, …ids}`, see RunMessage. */
export const runTopic = (run: string): string => `run:${run}`;

/**
 * Tasks that have ended: `{ids}`. Every instance that has ever had a wait for a task is
 * subscribed.
 */
export const TASK_ENDS_TOPIC = 'task-ends';

/** Another change of a task: `{id}`. Instances that follow the task are subscribed. */
export const taskTopic = (taskId: string): string => `task:${taskId}`;

/**
 * Tickets that became active, ended or were deleted: `{ids}`. Every instance that has ever had a
 * wait for a ticket is subscribed.
 */
export const TICKETS_TOPIC = 'tickets';

/**
 * Tasks may be queued for a server with a legacy agent: `{server_uuid}`. For any instance that has
 * room.
 */
export const POSTS_TOPIC = 'posts';

/** Some duties are free: `{}`. For any instance that has room. */
export const DUTIES_TOPIC = 'duties';

/** Agents may have to be asked to take part in these push jobs, or to forget them: `{ids}`. For all instances. */
export const PUSH_ERRANDS_TOPIC = 'push-errands';

/** Something of these push jobs has changed: `{ids}`. For those who carry them out or follow them. */
export const PUSH_CHANGES_TOPIC = 'push-changes';

/** Messages to the run that acts for a server. */
export type RunMessage =
  /** This server may have queued work, or a cancel to send to its agent. */
  | { kind: 'tasks'; server_uuid: string }
  /** The same for several servers. */
  | { kind: 'tasks-of'; server_uuids: string[] }
  /**
   * The server's row has a higher epoch or was removed. The receiver compares its session with it.
   */
  | { kind: 'roster'; server_uuid: string; epoch: number }
  /**
   * Answer on `reply` only if the session of this epoch answers a probe sent after this message.
   */
  | { kind: 'probe'; server_uuid: string; epoch: number; reply: string };

/** Parses a message of a run's topic; undefined for any other message, which is ignored. */
export function parseRunMessage(message: Record<string, unknown>): RunMessage | undefined {
  const { kind, server_uuid, server_uuids, epoch, reply } = message;
  if (kind === 'tasks-of' && Array.isArray(server_uuids))
    return { kind, server_uuids: server_uuids.filter((one) => typeof one === 'string') };
  if (typeof server_uuid !== 'string') return undefined;
  if (kind === 'tasks') return { kind, server_uuid };
  if (typeof epoch !== 'number') return undefined;
  if (kind === 'roster') return { kind, server_uuid, epoch };
  return kind === 'probe' && typeof reply === 'string' ? { kind, server_uuid, epoch, reply } : undefined;
}
