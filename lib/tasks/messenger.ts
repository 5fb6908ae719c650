/**
 * What the tasks subsystem needs in order to give tasks to old agents, which hold no session: one request per task, to
 * the agent itself. Implemented by `lib/old-agents/caller.ts`.
 */
import type { JsonObject, TaskError } from './task.ts';

export interface PostedTask {
  id: string;
  serverUuid: string;
  name: string;
  params: JsonObject;
  requestId: string | undefined;
}

export type PostedEnd = { outcome: 'complete'; result: JsonObject } | { outcome: 'failure'; error: TaskError };

export interface TaskMessenger {
  /**
   * Hands the task to its server's agent, once, and waits for how it ends. Settles within `timeoutMs`, and at once when
   * `signal` aborts; never rejects: what went wrong is the task's failure, which says whether the task may have run.
   */
  post(task: PostedTask, options: { timeoutMs: number; signal: AbortSignal }): Promise<PostedEnd>;
}
