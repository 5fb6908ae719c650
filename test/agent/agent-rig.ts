/** An agent on a simulated machine, in this process, and scripted instances for it. */
import type { Test } from 'tap';
import { Agent, type AgentDeps } from '../../lib/agent/agent.ts';
import { catalogueOf } from '../../lib/agent/catalogue.ts';
import { MemoryJournal } from '../../lib/agent/journal/journal-memory.ts';
import type { Endpoint } from '../../lib/agent/link/endpoints.ts';
import { dialWebSocket } from '../../lib/agent/link/link-socket.ts';
import { Ticker } from '../../lib/agent/link/ticker.ts';
import { SimulatedMachine } from '../../lib/agent/simulated/simulated-machine.ts';
import { silentLogger } from '../../lib/platform/log.ts';
import { systemRandom as random } from '../../lib/platform/random.ts';
import { systemClock as clock } from '../../lib/platform/time/clock.ts';
import { type Script, ScriptedInstance } from '../support/scripted-instance.ts';

export async function instance(t: Test, script: Script = {}, port = 0): Promise<ScriptedInstance> {
  const started = await ScriptedInstance.start(script, port);
  t.teardown(() => started.stop());
  return started;
}

export async function agent(t: Test, known: ScriptedInstance[], fields: Partial<AgentDeps> = {}) {
  const serverUuid = random.uuid();
  const journal = fields.journal ?? new MemoryJournal({ clock, random });
  const resolutions: number[] = [];
  const made = new Agent({
    clock,
    random,
    log: silentLogger,
    ticker: new Ticker({ clock, periodMs: 50 }),
    dial: dialWebSocket(clock),
    resolve: async (): Promise<Endpoint[]> => {
      resolutions.push(clock.now());
      return known.map((one) => ({ ...one.address }));
    },
    services: {
      machine: new SimulatedMachine({
        clock,
        random,
        serverUuid,
        number: 1,
        agentVersion: '1.0.0',
        sysinfoSize: 'small',
      }),
    },
    tasks: catalogueOf({}),
    serverUuid,
    agentVersion: '1.0.0',
    allowReboot: false,
    protocol: 'auto',
    ...fields,
    journal,
  });
  t.teardown(() => made.stop());
  await made.start();
  return { agent: made, journal, serverUuid, resolutions };
}

export const nop = (epoch: number) => ({ id: random.uuid(), epoch, name: 'nop' });
