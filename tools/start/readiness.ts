/** Questions by which the supervisor finds out that its children have come up. */
import { Resolver } from 'node:dns/promises';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { z } from 'zod';
import type { Clock } from '../../lib/ports/clock.ts';

const answerLimitMs = 2000;
const agentLimitMs = 10_000;

/** Whether the instance at `url` says that it is ready for work. */
export async function answersReady(url: string): Promise<boolean> {
  try {
    const response = await fetch(`${url}/ready`, { signal: AbortSignal.timeout(answerLimitMs) });
    await response.arrayBuffer();
    return response.status === 200;
  } catch {
    return false;
  }
}

const instanceRows = z.array(z.looseObject({ uuid: z.string(), pid: z.int(), agents: z.int() }));

/** How many agents an instance holds, as the one at `url` has it (a beat old at most); undefined when it does not say. */
export async function agentsOn(url: string, instance: { uuid: string; pid: number }): Promise<number | undefined> {
  try {
    const response = await fetch(`${url}/instances`, { signal: AbortSignal.timeout(answerLimitMs) });
    const rows = instanceRows.parse(await response.json());
    return rows.find(({ uuid, pid }) => uuid === instance.uuid && pid === instance.pid)?.agents;
  } catch {
    return undefined;
  }
}

/** Whether the name server at `dns` names instances on all of `ports`; there may be others in the same database. */
export async function areNamed(dns: string, name: string, ports: readonly number[]): Promise<boolean> {
  const resolver = new Resolver({ timeout: answerLimitMs, tries: 1 });
  resolver.setServers([dns]);
  try {
    const named = new Set((await resolver.resolveSrv(name)).map(({ port }) => port));
    return ports.every((port) => named.has(port));
  } catch {
    return false;
  }
}

/** The uuid that the agent keeps for this machine; undefined until it has started for the first time. */
export function serverUuidOf(data: string): string | undefined {
  try {
    return readFileSync(path.join(data, 'agent', 'server-uuid'), 'utf8').trim() || undefined;
  } catch {
    return undefined;
  }
}

export interface ServerQuestion {
  url: string;
  uuid: string;
  clock: Clock;
  signal: AbortSignal;
}

/** Resolves to true once the server counts as running, to false when that takes too long or `signal` aborts. */
export async function untilServerRuns({ url, uuid, clock, signal }: ServerQuestion): Promise<boolean> {
  const deadline = clock.now() + agentLimitMs;
  while (!signal.aborted && clock.now() < deadline) {
    if ((await statusOf(url, uuid)) === 'running') return true;
    await clock.sleep(50, signal);
  }
  return false;
}

async function statusOf(url: string, uuid: string): Promise<string | undefined> {
  try {
    const response = await fetch(`${url}/servers/${uuid}`, { signal: AbortSignal.timeout(answerLimitMs) });
    return ((await response.json()) as { status?: string }).status;
  } catch {
    return undefined;
  }
}
