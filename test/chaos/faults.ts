/**
 * All faults that a run can cause: each kind chooses a random target, and says which of the
 * system's promises do not hold meanwhile (servers without an agent or a connection, codes that
 * tasks of these may fail with).
 */
import { rmSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Program } from '../../tools/processes/program.ts';
import type { CuttableProxy } from '../support/cuttable-proxy.ts';
import type { Instance, RealAgent } from '../support/fleet-harness.ts';
import { answerFaults } from './answer-faults.ts';
import { arrivalFaults } from './arrivals.ts';
import { between, pick } from './chance.ts';
import type { FaultKind, Harm, Stage } from './harm.ts';
import type { Health } from './health.ts';
import type { LineKind } from './history.ts';

/** docs/design.md I1: silenceMs + checkMs, and a statement. */
const DEAD_WITHIN_MS = 2_500;
/**
 * leaseMs + ownerlessGraceMs + 3 s; 18 s more where an observer has just started or has just
 * reconnected to its database.
 */
const LOST_WITHIN_MS = 13_000 + 18_000;
/**
 * Frozen agents stay frozen until they are detected, or for several times as long as that may take.
 */
const FROZEN = { lastsMs: 1_000, untilSeenMs: 25_000 };

const killed = async (health: Health, program: Program, signal: NodeJS.Signals = 'SIGKILL') => {
  health.down.add(program);
  await program.kill(signal);
};

const started = (health: Health, program: Program) => {
  program.start();
  health.down.delete(program);
};

function onInstance(act: (instance: Instance, stage: Stage) => Pick<Harm, 'lastsMs' | 'begin' | 'end'>) {
  return (stage: Stage): Harm => {
    const instance = pick([...stage.zone.instances.keys()], stage.random);
    return { part: 'instance', instance, ...act(stage.zone.instances[instance] as Instance, stage) };
  };
}

type AgentHarm = Pick<Harm, 'lastsMs' | 'untilSeenMs' | 'begin' | 'end' | 'codes'> & { isDead?: boolean };

function onAgent(act: (agent: RealAgent, stage: Stage) => AgentHarm) {
  return (stage: Stage): Harm => {
    const agent = pick(stage.zone.agents, stage.random);
    const servers = [agent.serverUuid];
    const { isDead, ...harm } = act(agent, stage);
    return { part: 'agent', servers, ...harm, ...(isDead ? { dead: { servers, withinMs: DEAD_WITHIN_MS } } : {}) };
  };
}

function onFleet(act: (fleet: Program, stage: Stage) => AgentHarm) {
  return (stage: Stage): Harm => {
    const servers = [...stage.simulated];
    const { isDead, ...harm } = act(stage.zone.fleet as Program, stage);
    return { part: 'fleet', servers, ...harm, ...(isDead ? { dead: { servers, withinMs: DEAD_WITHIN_MS } } : {}) };
  };
}

const processFaults: FaultKind[] = [
  {
    name: 'instance killed',
    prepare: (stage) => killInstance(stage, pick([...stage.zone.instances.keys()], stage.random)),
  },
  {
    name: 'instance killed until its lease lapsed',
    prepare: onInstance(({ program }, { health }) => ({
      lastsMs: 14_000,
      begin: () => killed(health, program),
      end: () => started(health, program),
    })),
  },
  {
    name: 'instance frozen for a moment',
    prepare: onInstance(({ program }, { random }) => ({
      lastsMs: between(1_500, 4_000, random),
      begin: () => program.freeze(),
      end: () => program.thaw(),
    })),
  },
  {
    name: 'instance frozen until its lease lapsed',
    prepare: onInstance(({ program }) => ({
      lastsMs: 13_000,
      begin: () => program.freeze(),
      end: () => program.thaw(),
    })),
  },
  {
    name: 'instance killed while cut off from Postgres',
    prepare: onInstance(({ program, databaseProxy }, { health }) => ({
      lastsMs: 500,
      begin: async () => {
        databaseProxy?.swallow();
        await sleep(2_500);
        await killed(health, program);
      },
      end: () => {
        databaseProxy?.heal();
        started(health, program);
      },
    })),
  },
  {
    name: 'instance drained and restarted',
    prepare: onInstance(({ program }, { health }) => ({
      lastsMs: 500,
      begin: () => killed(health, program, 'SIGTERM'),
      end: () => started(health, program),
    })),
  },
  {
    name: 'all instances killed',
    prepare: ({ zone, health, random }) => ({
      // No instance can be asked, as with the database gone.
      part: 'postgres',
      lastsMs: between(500, 3_000, random),
      begin: async () => void (await Promise.all(zone.instances.map(({ program }) => killed(health, program)))),
      end: () => zone.instances.forEach(({ program }) => void started(health, program)),
    }),
  },
  {
    name: 'agent killed',
    prepare: onAgent(({ program }, { health, random }) => ({
      codes: ['AgentRestarted', 'NotTaken'],
      isDead: true,
      lastsMs: between(0, 6_000, random),
      begin: () => killed(health, program),
      end: () => started(health, program),
    })),
  },
  {
    name: 'agent frozen',
    prepare: onAgent(({ program }) => ({
      codes: ['NotTaken'],
      isDead: true,
      ...FROZEN,
      begin: () => program.freeze(),
      end: () => program.thaw(),
    })),
  },
  {
    name: 'agent restarted',
    prepare: onAgent(({ program }, { health }) => ({
      codes: ['AgentStopped', 'AgentRestarted', 'NotTaken'],
      lastsMs: 500,
      begin: () => killed(health, program, 'SIGTERM'),
      end: () => started(health, program),
    })),
  },
  {
    name: 'agent killed, journal lost',
    prepare: onAgent(({ program, data }, { health, random }) => ({
      codes: ['OutcomeUnknown', 'NotTaken'],
      lastsMs: between(0, 2_000, random),
      begin: () => killed(health, program),
      end: () => {
        rmSync(data, { recursive: true, force: true });
        started(health, program);
      },
    })),
  },
  {
    name: 'agent killed with its instance',
    prepare: ({ zone, health, random }) => {
      const agent = pick(zone.agents, random);
      const servers = [agent.serverUuid];
      const instance = instanceOf({ zone, health }, agent.serverUuid);
      const programs = [(zone.instances[instance] as Instance).program, agent.program];
      return {
        part: 'instance',
        instance,
        servers,
        dead: { servers, withinMs: LOST_WITHIN_MS },
        codes: ['AgentRestarted', 'NotTaken'],
        lastsMs: 5_000,
        untilSeenMs: 45_000,
        begin: async () => void (await Promise.all(programs.map((program) => killed(health, program)))),
        end: () => {
          for (const program of programs) started(health, program);
        },
      };
    },
  },
  {
    name: 'simulated agents killed',
    prepare: onFleet((fleet, { health, random }) => ({
      codes: ['OutcomeUnknown', 'NotTaken'],
      isDead: true,
      lastsMs: between(0, 6_000, random),
      begin: () => killed(health, fleet),
      end: () => started(health, fleet),
    })),
  },
  {
    name: 'simulated agents frozen',
    prepare: onFleet((fleet) => ({
      codes: ['NotTaken'],
      isDead: true,
      ...FROZEN,
      begin: () => fleet.freeze(),
      end: () => fleet.thaw(),
    })),
  },
  {
    name: 'simulated agents restarted',
    prepare: onFleet((fleet) => ({
      codes: ['AgentStopped', 'AgentRestarted', 'NotTaken'],
      lastsMs: 2_000,
      begin: () => fleet.say('{"do":"restart"}'),
      end: () => undefined,
    })),
  },
];

/**
 * Longer than a slow poll and the slack of a bound: a wait that relied on the bus would be too
 * late.
 */
const WITHOUT_BUS_MS: [number, number] = [8_500, 11_000];

const storeFaults: FaultKind[] = [
  {
    name: 'Redis killed',
    prepare: ({ zone, random }) => ({
      part: 'redis',
      lastsMs: between(...WITHOUT_BUS_MS, random),
      begin: () => zone.redis.stop(),
      end: () => zone.redis.restart(),
    }),
  },
  {
    name: 'Redis frozen',
    prepare: ({ zone, random }) => ({
      part: 'redis',
      lastsMs: between(...WITHOUT_BUS_MS, random),
      begin: () => zone.redis.freeze(),
      end: () => zone.redis.thaw(),
    }),
  },
  {
    name: 'Postgres frozen',
    prepare: ({ zone, random }) => ({
      part: 'postgres',
      lastsMs: between(1_000, 6_000, random),
      begin: () => zone.postgres.freeze(),
      end: () => zone.postgres.thaw(),
    }),
  },
  {
    name: 'Postgres restarted',
    prepare: ({ zone, random }) => ({
      part: 'postgres',
      lastsMs: between(0, 4_000, random),
      begin: () => zone.postgres.stop(),
      end: () => zone.postgres.start(),
    }),
  },
  {
    name: 'Postgres crashed',
    prepare: ({ zone, random }) => ({
      part: 'postgres',
      lastsMs: between(0, 2_000, random),
      begin: () => zone.postgres.crash(),
      end: () => zone.postgres.start(),
    }),
  },
];

interface Way {
  name: string;
  lastsMs: [number, number];
  begin(line: CuttableProxy, kind: LineKind): void;
  /** Whether the fault may cut off agents. */
  cutsOff: boolean;
}

const DELAYS_MS: Record<LineKind, number> = { agents: 500, database: 150, bus: 500, callers: 700 };
const BYTES_PER_SECOND: Record<LineKind, number> = { agents: 6_000, database: 60_000, bus: 1_500, callers: 6_000 };

const ways: Way[] = [
  {
    name: 'delayed',
    lastsMs: [3_000, 5_000],
    begin: (line, kind) => line.delay(DELAYS_MS[kind]),
    cutsOff: false,
  },
  {
    name: 'throttled',
    lastsMs: [3_000, 5_000],
    begin: (line, kind) => line.throttle(BYTES_PER_SECOND[kind]),
    cutsOff: false,
  },
  { name: 'cut without FIN', lastsMs: [3_000, 7_000], begin: (line) => line.swallow(), cutsOff: true },
  { name: 'cut with FIN', lastsMs: [500, 1_500], begin: (line) => line.finish(), cutsOff: true },
  { name: 'reset', lastsMs: [500, 1_500], begin: (line) => line.reset(), cutsOff: true },
  {
    name: 'cut in this direction only',
    lastsMs: [3_000, 7_000],
    begin: (line) => line.swallow({ only: 'up' }),
    cutsOff: true,
  },
  {
    name: 'cut in the other direction only',
    lastsMs: [3_000, 7_000],
    begin: (line) => line.swallow({ only: 'down' }),
    cutsOff: true,
  },
];

const lines: Record<LineKind, { name: string; of(instance: Instance): CuttableProxy | undefined }> = {
  agents: { name: 'agents to instance', of: ({ proxy }) => proxy },
  database: { name: 'instance to Postgres', of: ({ databaseProxy }) => databaseProxy },
  bus: { name: 'instance to Redis', of: ({ busProxy }) => busProxy },
  callers: { name: 'clients to instance', of: ({ callerProxy }) => callerProxy },
};

function lineFault(line: LineKind, way: Way): FaultKind {
  return {
    name: `${lines[line].name} ${way.name}`,
    prepare({ zone, health, random }) {
      const instance = pick([...zone.instances.keys()], random);
      const { uuid, ...ends } = zone.instances[instance] as Instance;
      const proxy = lines[line].of({ uuid, ...ends }) as CuttableProxy;
      const isCutOff = line === 'agents' && way.cutsOff;
      const servers = isCutOff ? health.roster.filter(({ owner }) => owner === uuid).map(({ server }) => server) : [];
      return {
        part: 'line',
        line,
        instance,
        servers,
        cutsOffNewcomers: isCutOff,
        lastsMs: between(...(line === 'bus' && way.name === 'cut without FIN' ? WITHOUT_BUS_MS : way.lastsMs), random),
        begin: () => way.begin(proxy, line),
        end: () => proxy.heal(),
      };
    },
  };
}

const pairFault: FaultKind = {
  name: 'one agent to its instance cut without FIN',
  prepare({ zone, health, random }) {
    const { serverUuid } = pick(zone.agents, random);
    const instance = instanceOf({ zone, health }, serverUuid);
    const { proxy } = zone.instances[instance] as Instance;
    return {
      part: 'line',
      line: 'agents',
      instance,
      servers: [serverUuid],
      lastsMs: between(4_000, 7_000, random),
      begin: () => proxy?.swallow({ serverUuid }),
      end: () => proxy?.heal(),
    };
  },
};

function instanceOf({ zone, health }: Pick<Stage, 'zone' | 'health'>, serverUuid: string): number {
  const owner = health.roster.find(({ server }) => server === serverUuid)?.owner;
  const index = zone.instances.findIndex(({ uuid }) => uuid === owner);
  return Math.max(0, index);
}

/** Kills an instance for a moment. */
function killInstance(stage: Stage, instance: number): Harm {
  const { program } = stage.zone.instances[instance] as Instance;
  return {
    part: 'instance',
    instance,
    lastsMs: between(0, 6_000, stage.random),
    begin: () => killed(stage.health, program),
    end: () => started(stage.health, program),
  };
}

/** Each of the instances is killed once: the plan `instances`. */
export const eachInstanceKilled = (instances: number): FaultKind[] =>
  Array.from({ length: instances }, (_, number) => ({
    name: 'instance killed',
    prepare: (stage) => killInstance(stage, number),
  }));

export const faultKinds: readonly FaultKind[] = [
  ...processFaults,
  ...storeFaults,
  ...answerFaults,
  ...arrivalFaults,
  pairFault,
  ...(Object.keys(lines) as LineKind[]).flatMap((line) => ways.map((way) => lineFault(line, way))),
];
