/** REST requests of the task figures. */
import { type BenchCaller, expectStatus } from './caller.ts';

/**
 * The route of a task that does nothing: its server, and the instances for the POST and the wait.
 */
export interface TaskRoute {
  serverUuid: string;
  postUrl: string;
  waitUrl: string;
}

interface Posted {
  id: string;
  /** Time until the answer. */
  ms: number;
}

/** Resolves when the task is accepted. */
export async function postTask(caller: BenchCaller, { serverUuid, postUrl }: TaskRoute): Promise<Posted> {
  const { text, ms } = expectStatus(await caller.post(`${postUrl}/servers/${serverUuid}/nop`, {}), 200);
  return { id: (JSON.parse(text) as { id: string }).id, ms };
}

/**
 * Resolves when the wait for the task is answered; returns how long the POST took.
 * @throws when the task did not complete
 */
export async function runTask(caller: BenchCaller, route: TaskRoute): Promise<number> {
  const { id, ms } = await postTask(caller, route);
  const waited = expectStatus(await caller.get(`${route.waitUrl}/tasks/${id}/wait?timeout=30`), 200);
  const { status } = JSON.parse(waited.text) as { status: string };
  if (status !== 'complete') throw new Error(`task ${id} is ${status}`);
  return ms;
}
