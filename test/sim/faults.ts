/** Carries out what plan.ts says goes wrong: begins each fault at its time and ends it when its time is over. */
import { type Direction, type Fault, lengthOf } from './plan.ts';
import type { SimAgent } from './sim-agent.ts';
import type { SimInstance } from './sim-instance.ts';
import { PHASE } from './virtual-time.ts';
import type { World } from './world.ts';

/** What a fault spoils: which of the bounds holds after it. The bus spoils nothing (law 1). */
export const DISTURBANCES = ['agents', 'instances', 'network', 'database', 'bus'] as const;
export type Disturbance = (typeof DISTURBANCES)[number];

export function disturbanceOf({ kind }: Fault): Disturbance {
  if (kind.startsWith('agent-connections') || kind.startsWith('agent-cut')) return 'network';
  if (kind.startsWith('agent-') || kind === 'old-agent-silent') return 'agents';
  if (kind.startsWith('bus-') || kind === 'instance-without-bus') return 'bus';
  if (kind.startsWith('database-') || kind === 'instance-without-database') return 'database';
  if (kind === 'instance-without-agents' || kind.startsWith('network-') || kind.startsWith('frames-')) return 'network';
  return 'instances';
}

/** A death is over at once: what matters is how long it takes to be noticed. */
function disturbsMs(fault: Fault): number {
  return ['instance-killed', 'instance-added', 'rack-lost'].includes(fault.kind) ? 0 : lengthOf(fault);
}

export function scheduleFaults(world: World, faults: readonly Fault[]): void {
  for (const fault of faults) {
    world.time.schedule(fault.at, PHASE.input, () => {
      const { at: _, kind, ...details } = fault;
      world.story.tell('fault', `${kind} ${JSON.stringify(details)}`);
      world.disturbed(disturbanceOf(fault), disturbsMs(fault));
      begin(world, fault);
    });
  }
}

function begin(world: World, fault: Fault): void {
  const { network, postgres, hub } = world;
  const afterwards = (end: () => void) => later(world, fault, end);
  switch (fault.kind) {
    case 'instance-killed':
      return killInstance(world, fault);
    case 'instance-drained':
      return drainInstance(world, fault);
    case 'instance-added':
      return world.addInstance();
    case 'instance-frozen': {
      const { process } = instanceOf(world, fault);
      process.freeze();
      return afterwards(() => process.thaw());
    }
    case 'instance-without-database': {
      const { name } = instanceOf(world, fault);
      postgres.cutOff(name, true);
      return afterwards(() => postgres.cutOff(name, false));
    }
    case 'instance-without-bus': {
      const { name } = instanceOf(world, fault);
      hub.cutOff(name, true);
      return afterwards(() => hub.cutOff(name, false));
    }
    case 'instance-without-agents':
      return cut(world, fault, instanceOf(world, fault).name);
    case 'agent-cut-off':
      return cut(world, fault, agentOf(world, fault).name);
    case 'agent-killed':
      return killAgent(world, fault);
    case 'rack-lost':
      return loseRack(world, fault);
    case 'agent-frozen': {
      const { process } = agentOf(world, fault);
      process?.freeze();
      return afterwards(() => process?.thaw());
    }
    case 'agent-clock-stepped': {
      const { process } = agentOf(world, fault);
      if (process !== undefined) process.wallOffsetMs += fault.ms;
      return;
    }
    case 'old-agent-silent': {
      const agent = world.oldAgents[fault.agent % Math.max(1, world.oldAgents.length)];
      agent?.silence(true);
      return afterwards(() => agent?.silence(false));
    }
    case 'agent-connections-reset':
      return network.reset(agentOf(world, fault).name, '*');
    case 'network-slow':
      network.set({ slowMs: fault.extraMs });
      return afterwards(() => network.set({ slowMs: 0 }));
    case 'network-losing':
      network.set({ loss: fault.loss });
      return afterwards(() => network.set({ loss: 0 }));
    case 'frames-repeated':
      network.set({ repeats: fault.share });
      return afterwards(() => network.set({ repeats: 0 }));
    case 'bus-killed':
      hub.hub.kill();
      return afterwards(() => hub.hub.restore());
    case 'bus-frozen':
      hub.hub.freeze();
      return afterwards(() => hub.hub.restore());
    case 'bus-losing':
      hub.loss = fault.loss;
      return afterwards(() => {
        hub.loss = 0;
      });
    case 'database-down':
    case 'database-frozen':
      postgres.set({ state: fault.kind === 'database-down' ? 'down' : 'frozen' });
      return afterwards(() => postgres.set({ state: 'up' }));
    case 'database-slow':
      postgres.set({ slowMs: fault.extraMs });
      return afterwards(() => postgres.set({ slowMs: 0 }));
    case 'database-failing':
      postgres.set({ failing: fault.share });
      return afterwards(() => postgres.set({ failing: 0 }));
    case 'database-losing-answers':
      postgres.set({ losingAnswers: fault.share });
      return afterwards(() => postgres.set({ losingAnswers: 0 }));
    default:
      return fault satisfies never;
  }
}

/** At the end of the fault, or when all faults end. */
function later(world: World, fault: Fault, end: () => void): void {
  world.time.schedule(lengthOf(fault), PHASE.input, () => {
    world.story.tell('fault', `${fault.kind} is over`);
    end();
  });
}

function killInstance(world: World, fault: Extract<Fault, { kind: 'instance-killed' }>): void {
  const instance = instanceOf(world, fault);
  instance.kill(fault);
  later(world, fault, () => startAgain(world, instance));
}

/** It may be alone, and stays; what has left comes again. */
function drainInstance(world: World, fault: Extract<Fault, { kind: 'instance-drained' }>): void {
  const instance = instanceOf(world, fault);
  instance.drain();
  later(world, fault, () => instance.start());
}

function killAgent(world: World, fault: Extract<Fault, { kind: 'agent-killed' }>): void {
  const agent = agentOf(world, fault);
  agent.kill(fault);
  later(world, fault, () => {
    if (agent.process?.isDead !== true) return;
    if (fault.journal === 'lost') agent.loseJournal();
    if (fault.journal === 'rolled-back') agent.rollBackJournal();
    agent.start();
  });
}

/** An instance and agents that it holds go at once, and the agents stay away for long. */
function loseRack(world: World, fault: Extract<Fault, { kind: 'rack-lost' }>): void {
  const instance = instanceOf(world, fault);
  const held = world.agents.filter(({ uuid }) => instance.core?.roster.sessions.get(uuid) !== undefined);
  instance.kill({ isPowerless: true });
  for (const agent of held.slice(0, 2)) {
    agent.kill({ isPowerless: true });
    later(world, fault, () => agent.start());
  }
  world.time.schedule(fault.instanceDownMs, PHASE.input, () => startAgain(world, instance));
}

function startAgain(world: World, instance: SimInstance): void {
  world.disturbed('instances', 0);
  instance.start();
}

function cut(world: World, fault: Fault & { direction: Direction }, name: string): void {
  const { network } = world;
  const ways: [string, string][] = [
    ...(fault.direction === 'in' ? [] : [[name, '*'] as [string, string]]),
    ...(fault.direction === 'out' ? [] : [['*', name] as [string, string]]),
  ];
  for (const [from, to] of ways) network.cut(from, to);
  later(world, fault, () => {
    for (const [from, to] of ways) network.mend(from, to);
  });
}

function instanceOf(world: World, { instance }: { instance: number }): SimInstance {
  return world.instances[instance % world.instances.length] as SimInstance;
}

function agentOf(world: World, { agent }: { agent: number }): SimAgent {
  return world.agents[agent % world.agents.length] as SimAgent;
}
