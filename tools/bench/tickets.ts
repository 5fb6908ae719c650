/** REST requests of the waitlist figures. */
import { type BenchCaller, expectStatus } from './caller.ts';

/** Creates a ticket in the queue; returns its uuid. */
export async function createTicket(caller: BenchCaller, url: string, queue: string): Promise<string> {
  const body = { scope: 'bench', id: queue, expires_in: 3600 };
  const reply = expectStatus(await caller.post(`${url}/servers/default/tickets`, body), 202);
  return (JSON.parse(reply.text) as { uuid: string }).uuid;
}

/** Resolves when the ticket is active. */
export async function waitForTicket(caller: BenchCaller, url: string, uuid: string): Promise<void> {
  expectStatus(await caller.get(`${url}/tickets/${uuid}/wait?timeout=60`), 204);
}

export async function releaseTicket(caller: BenchCaller, url: string, uuid: string): Promise<void> {
  expectStatus(await caller.put(`${url}/tickets/${uuid}/release`), 204);
}
