/** Carries out the faults of plan.ts: starts each at its time and ends it when its time is over. */
import { CnapiError } from '../../lib/platform/errors.ts';
import { disturbanceOf, disturbsMs } from './disturbances.ts';
import { type Direction, type Fault, lengthOf, READER_WITHIN_MS } from './plan.ts';
import type { SimAgent } from './sim-agent.ts';
import type { SimInstance } from './sim-instance.ts';
import type { SimProcess } from './sim-process.ts';
import { PHASE } from './virtual-time.ts';
import type { World } from './world.ts';

const LAG_MS = 950;
const LAG_PAUSE_MS = 50;

export function scheduleFaults(world: World, faults: readonly Fault[]): void {
  for (const fault of faults) {
    world.time.schedule(fault.at, PHASE.input, () => {
      const { at: _, kind, ...details } = fault;
      world.story.tell('fault', `${kind} ${JSON.stringify(details)}`);
      world.disturbed(disturbanceOf(fault), disturbsMs(fault), concernedBy(world, fault));
      begin(world, fault);
    });
  }
}

function concernedBy(world: World, fault: Fault): string | undefined {
  if ('instance' in fault) return instanceOf(world, fault).name;
  return 'agent' in fault && fault.kind !== 'legacy-agent-silent' ? agentOf(world, fault).name : undefined;
}

function begin(world: World, fault: Fault): void {
  switch (fault.kind) {
    case 'instance-killed':
      return killInstance(world, fault);
    case 'instance-drained':
      return drainInstance(world, fault);
    case 'instance-added':
      return world.addInstance();
    case 'agents-arriving':
      return world.addAgents(fault.agents, fault.ms);
    case 'instance-asked-to-leave':
      return askToLeave(world, fault);
    case 'instances-drained':
      return drainAll(world, fault);
    case 'instance-lagging':
      return lag(world, fault, instanceOf(world, fault).process);
    case 'run-declared-dead':
      return declareDead(world, instanceOf(world, fault));
    case 'agent-killed':
      return killAgent(world, fault);
    case 'agent-restored':
      return restoreAgent(world, fault);
    case 'agent-stopped':
      return stopAgent(world, fault);
    case 'rack-lost':
      return loseRack(world, fault);
    case 'agent-clock-stepped': {
      agentOf(world, fault).stepClock(fault.ms);
      return;
    }
    case 'agent-connections-reset':
      return world.network.reset(agentOf(world, fault).name, '*');
    case 'reader-frozen':
      return freezeReader(world, fault);
    case 'instance-frozen':
      return freeze(world, fault, instanceOf(world, fault).process);
    case 'agent-frozen':
      return freeze(world, fault, agentOf(world, fault).process);
    case 'instance-without-agents':
      return cut(world, fault, instanceOf(world, fault).name);
    case 'agent-cut-off':
      return cut(world, fault, agentOf(world, fault).name);
    default:
      world.conditions.begin(fault, concernedBy(world, fault));
      return later(world, fault, () => world.conditions.end(fault));
  }
}

/** Called at the end of the fault. */
function later(world: World, fault: Fault, end: () => void): void {
  world.time.schedule(lengthOf(fault), PHASE.input, () => {
    world.story.tell('fault', `${fault.kind} is over`);
    end();
  });
}

/** A process that is frozen twice is stopped until both freezes are over. */
function freeze(world: World, fault: Fault, process: SimProcess | undefined): void {
  process?.freeze();
  later(world, fault, () => process?.thaw());
}

function freezeReader(world: World, fault: Extract<Fault, { kind: 'reader-frozen' }>): void {
  const { postgres, time } = world;
  const disarm = postgres.onceWide((who) => {
    const process = world.instances.find(({ name }) => name === who)?.process;
    world.story.tell('fault', `${who} is stopped in the middle of an answer`);
    process?.freeze();
    world.disturbed('instances', fault.ms, who);
    time.schedule(fault.ms, PHASE.input, () => process?.thaw());
  });
  time.schedule(READER_WITHIN_MS, PHASE.input, disarm);
}

function killInstance(world: World, fault: Extract<Fault, { kind: 'instance-killed' }>): void {
  const instance = instanceOf(world, fault);
  instance.kill(fault);
  later(world, fault, () => startAgain(world, instance));
}

/** The last instance stays; one that has left is started again. */
function drainInstance(world: World, fault: Extract<Fault, { kind: 'instance-drained' }>): void {
  const instance = instanceOf(world, fault);
  instance.drain();
  later(world, fault, () => instance.start());
}

/** Over REST, at another instance. The request may be refused: the instance may be the last one. */
function askToLeave(world: World, fault: Extract<Fault, { kind: 'instance-asked-to-leave' }>): void {
  const instance = instanceOf(world, fault);
  const other = world.instances.find((one) => one !== instance && one.isUp);
  other?.process.receive(0, () => {
    other.core?.roster.drain(instance.uuid).catch((error: unknown) => {
      if (!(error instanceof CnapiError)) world.crashed(other.name, error);
    });
  });
  later(world, fault, () => instance.start());
}

function drainAll(world: World, fault: Extract<Fault, { kind: 'instances-drained' }>): void {
  for (const instance of world.instances) instance.drain();
  later(world, fault, () => {
    for (const instance of world.instances) startAgain(world, instance);
  });
}

/** The process is stopped for most of each second, so hardly any tick is on time. */
function lag(world: World, fault: Fault & { ms: number }, process: SimProcess): void {
  const until = world.time.now + fault.ms;
  const stand = () => {
    if (world.time.now >= until) return;
    process.freeze();
    world.time.schedule(LAG_MS, PHASE.input, () => {
      process.thaw();
      world.time.schedule(LAG_PAUSE_MS, PHASE.input, stand);
    });
  };
  stand();
}

/** Acts like an observer whose reads show that the beat does not move. */
function declareDead({ postgres, story }: World, { core }: SimInstance): void {
  const run = core?.roster.membership.run;
  if (run === undefined) return;
  const text = `update cnapi_instances set state = 'dead', ended_at = cnapi_now(), end_reason = 'lapsed'
     where run = $1::uuid and state = 'live'`;
  postgres.send({
    who: 'an observer',
    label: 'declares a run dead',
    text,
    values: [run],
    run: (database) => database.query(text, [run]),
    answered: (_, read) => read?.(),
    failed: (error) => story.tell('fault', `the run was not declared dead: ${String(error)}`),
  });
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

/**
 * Cuts the connections of an agent, so that it gets a new session; then its machine restarts from a
 * backup made before that session.
 */
function restoreAgent(world: World, fault: Extract<Fault, { kind: 'agent-restored' }>): void {
  const agent = agentOf(world, fault);
  const backup = agent.copyOfJournal();
  world.network.reset(agent.name, '*');
  world.time.schedule(fault.afterMs, PHASE.input, () => agent.kill({ isPowerless: true }));
  later(world, fault, () => {
    if (agent.process?.isDead !== true) return;
    agent.restoreJournal(backup);
    agent.start();
  });
}

/** An orderly stop: running tasks end and are reported, and it restarts with its journal. */
function stopAgent(world: World, fault: Extract<Fault, { kind: 'agent-stopped' }>): void {
  const agent = agentOf(world, fault);
  agent.stop();
  later(world, fault, () => agent.start());
}

/** An instance and agents that it holds stop at once, and the agents stay away for long. */
function loseRack(world: World, fault: Extract<Fault, { kind: 'rack-lost' }>): void {
  const instance = instanceOf(world, fault);
  const held = world.agents.filter(({ uuid }) => instance.core?.roster.sessions.get(uuid) !== undefined);
  instance.kill({ isPowerless: true });
  for (const agent of held.slice(0, 2)) {
    agent.kill({ isPowerless: true });
    world.disturbed('agents', lengthOf(fault), agent.name);
    later(world, fault, () => agent.start());
  }
  world.time.schedule(fault.instanceDownMs, PHASE.input, () => startAgain(world, instance));
}

function startAgain(world: World, instance: SimInstance): void {
  world.disturbed('instances', 0, instance.name);
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
    for (const [from, to] of ways) network.restore(from, to);
  });
}

function instanceOf(world: World, { instance }: { instance: number }): SimInstance {
  return world.instances[instance % world.instances.length] as SimInstance;
}

function agentOf(world: World, { agent }: { agent: number }): SimAgent {
  return world.agents[agent % world.agents.length] as SimAgent;
}
