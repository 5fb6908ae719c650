/** Real agents on simulated machines, connected to instances of this process. */
import type { Test } from 'tap';
import { Agent } from '../../lib/agent/agent.ts';
import { catalogueOf } from '../../lib/agent/catalogue.ts';
import { MemoryJournal } from '../../lib/agent/journal/journal-memory.ts';
import { dialWebSocket } from '../../lib/agent/link/link-socket.ts';
import { Ticker } from '../../lib/agent/link/ticker.ts';
import { SimulatedMachine } from '../../lib/agent/simulated/simulated-machine.ts';
import { silentLogger } from '../../lib/platform/log.ts';
import { systemRandom as random } from '../../lib/platform/random.ts';
import { systemClock as clock } from '../../lib/platform/time/clock.ts';
import type { TestApp } from './apps.ts';
import { until } from './until.ts';

export interface TestAgent {
  serverUuid: string;
  /** Simulates a crash of its process. */
  crash(): void;
  /** Simulates a start after a crash, with the same journal. */
  restart(): Promise<void>;
  /** Simulates a stop by its operator. */
  stop(): Promise<void>;
}

/** Resolves when the zone shows all of them as running. Each prefers the next instance. */
export async function startAgents(t: Test, apps: readonly TestApp[], count: number): Promise<TestAgent[]> {
  const agents = await Promise.all(Array.from({ length: count }, (_, index) => startAgent(t, apps, index)));
  await Promise.all(
    agents.map(({ serverUuid }) =>
      until(async () => {
        const { status, body } = (await apps[0]?.get<{ status?: string }>(`/servers/${serverUuid}`)) ?? {};
        return status === 200 && body?.status === 'running';
      }, `server ${serverUuid} to run`),
    ),
  );
  return agents;
}

async function startAgent(t: Test, apps: readonly TestApp[], index: number): Promise<TestAgent> {
  const serverUuid = random.uuid();
  const order = [...apps.slice(index % apps.length), ...apps.slice(0, index % apps.length)];
  const journal = new MemoryJournal({ clock, random });
  const create = () =>
    new Agent({
      clock,
      random,
      log: silentLogger,
      ticker: new Ticker({ clock, periodMs: 50 }),
      dial: dialWebSocket(clock),
      resolve: async () =>
        order.map(({ url, cnapiUuid: uuid }) => ({
          uuid,
          host: new URL(url).hostname,
          port: Number(new URL(url).port),
        })),
      journal,
      services: {
        machine: new SimulatedMachine({
          clock,
          random,
          serverUuid,
          number: index,
          agentVersion: '1.0.0',
          sysinfoSize: 'small',
        }),
      },
      tasks: catalogueOf({}),
      serverUuid,
      agentVersion: '1.0.0',
      allowReboot: false,
      protocol: 'auto',
    });
  let agent = create();
  t.teardown(() => agent.stop());
  await agent.start();
  return {
    serverUuid,
    crash: () => agent.abandon(),
    restart: async () => {
      agent = create();
      await agent.start();
    },
    stop: () => agent.stop(),
  };
}
