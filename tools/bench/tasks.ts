/** What the figures of tasks ask over REST. */
import { type BenchCaller, expectStatus } from './caller.ts';

/** One that does nothing: whose agent has it, and which instances are asked. */
export interface TaskRoute {
  serverUuid: string;
  postUrl: string;
  waitUrl: string;
}

/** Resolves when the wait for it is answered; returns how long the POST took. @throws when it did not complete */
export async function runTask(caller: BenchCaller, { serverUuid, postUrl, waitUrl }: TaskRoute): Promise<number> {
  const posted = expectStatus(await caller.post(`${postUrl}/servers/${serverUuid}/nop`, {}), 200);
  const { id } = JSON.parse(posted.text) as { id: string };
  const waited = expectStatus(await caller.get(`${waitUrl}/tasks/${id}/wait?timeout=30`), 200);
  const { status } = JSON.parse(waited.text) as { status: string };
  if (status !== 'complete') throw new Error(`task ${id} is ${status}`);
  return posted.ms;
}
