/**
 * How the tasks subsystem gives tasks to legacy agents, which hold no session: one request per
 * task, to the agent itself. Implemented by `lib/control/legacy/legacy-agent-api.ts`.
 */
import type { JsonObject, TaskError } from '../tasks/task.ts';

export interface PostedTask {
  id: string;
  serverUuid: string;
  name: string;
  params: JsonObject;
  requestId: string | undefined;
}

export type PostedEnd = { outcome: 'complete'; result: JsonObject } | { outcome: 'failure'; error: TaskError };

export interface LegacyTaskSender {
  /**
   * Sends the task to its server's agent once, and waits for its end. Settles within `timeoutMs`,
   * or at once when `signal` aborts. Never rejects: an error becomes the task's failure, which
   * states whether the task may have run.
   */
  post(task: PostedTask, options: { timeoutMs: number; signal: AbortSignal }): Promise<PostedEnd>;
}
