/** Requests that tell the supervisor whether its children have come up. */
import { Resolver } from 'node:dns/promises';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { z } from 'zod';
import type { Clock } from '../../lib/platform/time/clock.ts';
import { httpGet } from './http-get.ts';

const answerLimitMs = 2000;
const agentLimitMs = 10_000;
const agentsLimitMs = 60_000;
const progressMs = 5_000;

/** Whether the instance at `url` reports that it is ready for work. */
export async function answersReady(url: string): Promise<boolean> {
  try {
    return (await httpGet(`${url}/ready`, { withinMs: answerLimitMs })).status === 200;
  } catch {
    return false;
  }
}

const instanceRows = z.array(z.looseObject({ uuid: z.string(), pid: z.int(), agents: z.int() }));

const serverRows = z.array(z.looseObject({ status: z.string() }));
const serverPage = 1000;

export interface InstanceQuestion {
  uuid: string;
  pid: number;
  headers: Record<string, string>;
}

/**
 * Asks the instance at `url` how many agents another instance holds (at most one beat old);
 * undefined when it does not answer.
 */
export async function agentsOn(url: string, { headers, ...instance }: InstanceQuestion): Promise<number | undefined> {
  const rows = await readInstances(url, headers);
  return rows.find(({ uuid, pid }) => uuid === instance.uuid && pid === instance.pid)?.agents;
}

/** Empty when it does not say. */
async function readInstances(url: string, headers: Record<string, string>): Promise<z.output<typeof instanceRows>> {
  try {
    const { text } = await httpGet(`${url}/instances`, { headers, withinMs: answerLimitMs });
    return instanceRows.parse(JSON.parse(text));
  } catch {
    return [];
  }
}

/**
 * Whether the name server at `dns` names instances on all of `ports`; it may name others of the
 * same database.
 */
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

/**
 * Returns the uuid that the agent stores for this machine; undefined before the agent's first
 * start.
 */
export function serverUuidOf(data: string): string | undefined {
  try {
    return readFileSync(path.join(data, 'agent', 'server-uuid'), 'utf8').trim() || undefined;
  } catch {
    return undefined;
  }
}

export interface AgentsQuestion {
  url: string;
  /** The instances that they may be connected to. */
  instances: readonly { uuid: string; pid: number }[];
  count: number;
  headers: Record<string, string>;
  clock: Clock;
  signal: AbortSignal;
  /** How many run, each few seconds. */
  onProgress: (running: number) => void;
}

/**
 * Resolves to how many servers run: all, or as many as there are when no more come, or after a
 * minute. They are counted once their agents are connected: a server that an earlier run left
 * behind may still count as running.
 */
export async function untilServersRun(question: AgentsQuestion): Promise<number> {
  const { clock, signal, count } = question;
  const beganAt = clock.now();
  let most = { running: 0, at: beganAt };
  let reportedAt = beganAt;
  while (!signal.aborted && most.running < count) {
    const agents = await agentsOnAll(question);
    const running = agents < count ? agents : Math.min(agents, await runningServers(question));
    const now = clock.now();
    if (running > most.running) most = { running, at: now };
    if (running >= count || now - most.at > agentLimitMs || now - beganAt > agentsLimitMs) break;
    if (now - reportedAt >= progressMs) question.onProgress(running);
    if (now - reportedAt >= progressMs) reportedAt = now;
    await clock.sleep(50, signal);
  }
  return most.running;
}

async function agentsOnAll({ url, instances, headers }: AgentsQuestion): Promise<number> {
  const rows = await readInstances(url, headers);
  return rows
    .filter((row) => instances.some(({ uuid, pid }) => row.uuid === uuid && row.pid === pid))
    .reduce((sum, { agents }) => sum + agents, 0);
}

async function runningServers({ url, headers }: Pick<AgentsQuestion, 'url' | 'headers'>): Promise<number> {
  try {
    for (let offset = 0, running = 0; ; offset += serverPage) {
      const list = `${url}/servers?fields=uuid,status&limit=${serverPage}&offset=${offset}`;
      const { text } = await httpGet(list, { headers, withinMs: answerLimitMs });
      const rows = serverRows.parse(JSON.parse(text));
      running += rows.filter(({ status }) => status === 'running').length;
      if (rows.length < serverPage) return running;
    }
  } catch {
    return 0;
  }
}

export interface ServerQuestion {
  url: string;
  uuid: string;
  headers: Record<string, string>;
  clock: Clock;
  signal: AbortSignal;
}

/**
 * Resolves to true when the server is running, to false when that takes too long or `signal`
 * aborts.
 */
export async function untilServerRuns(question: ServerQuestion): Promise<boolean> {
  const { clock, signal } = question;
  const deadline = clock.now() + agentLimitMs;
  while (!signal.aborted && clock.now() < deadline) {
    if ((await statusOf(question)) === 'running') return true;
    await clock.sleep(50, signal);
  }
  return false;
}

/** What the agent says of containers on its machine; undefined if it says nothing in time. */
export async function containersOf(question: ServerQuestion): Promise<string | undefined> {
  const { clock, signal } = question;
  const deadline = clock.now() + agentLimitMs;
  while (!signal.aborted && clock.now() < deadline) {
    const containers = (await readServer(question))?.sysinfo?.Containers;
    if (containers !== undefined) return containers;
    await clock.sleep(50, signal);
  }
  return undefined;
}

const statusOf = async (question: ServerQuestion) => (await readServer(question))?.status;

const serverRow = z.looseObject({
  status: z.string().optional(),
  sysinfo: z.looseObject({ Containers: z.string().optional() }).optional(),
});

/** Undefined while no instance answers. */
async function readServer({ url, uuid, headers }: ServerQuestion) {
  try {
    const { text } = await httpGet(`${url}/servers/${uuid}`, { headers, withinMs: answerLimitMs });
    return serverRow.parse(JSON.parse(text));
  } catch {
    return undefined;
  }
}
