/**
 * More agents arrive at once than the instances, whose event loops are slow here, can admit. Seeds
 * named `arriving-N` have this in place of the faults of a common plan, alone or with a fault that
 * stops an instance or the database meanwhile. In most of them the arrivals are over before an
 * instance may decide about the servers of others (startGraceMs); in one story they are not.
 */
import type { Costs, Fault, Plan } from './plan.ts';
import { SeededRandom } from './seeded-random.ts';

interface Drawn {
  random: SeededRandom;
  instances: number;
  /** When the agents begin to arrive. */
  at: number;
}

/** An admission includes everything until the session works. */
const COSTS: Costs = { greetMs: 14, refusalMs: 0.5, frameMs: 0.3 };
/** On a slower machine agents are told to return after a longer time. */
const SLOW_COSTS: Costs = { ...COSTS, greetMs: 40 };
/** The number of agents that are connected before. */
const STANDING = [30, 60] as const;
/** Several times as many as the instances can admit in that time. */
const ARRIVING = [600, 700] as const;
const ARRIVING_MS = [500, 3_000] as const;
const ARRIVE_AT = [6_000, 8_000] as const;
/** When instances may decide about the servers of others. */
const ARRIVE_LATE_AT = [24_000, 26_000] as const;
const OPERATIONS_UNTIL_MS = 12_000;
/**
 * The longest time that an agent is asked to wait, plus the time to admit those that return then.
 */
const CONNECTED_WITHIN_MS = 45_000;

export function arrivingOf(plan: Plan): Plan {
  const random = new SeededRandom(`arriving ${plan.seed}`);
  const story = STORIES[Number(/\d+$/.exec(plan.seed)?.[0] ?? 0) % STORIES.length] as (typeof STORIES)[number];
  const isLate = story === othersDefer;
  const instances = isLate ? 2 : random.whole(1, 2);
  const [from, to] = isLate ? ARRIVE_LATE_AT : ARRIVE_AT;
  const at = Math.round(random.between(from, to));
  const wave: Fault = {
    at,
    kind: 'agents-arriving',
    agents: random.whole(...ARRIVING),
    ms: Math.round(random.between(...ARRIVING_MS)),
  };
  const faults = [wave, ...story({ random, instances, at })].sort((one, other) => one.at - other.at);
  const operations = plan.operations.filter((operation) => operation.at < OPERATIONS_UNTIL_MS);
  const agents = random.whole(...STANDING);
  const costs = isLate ? SLOW_COSTS : COSTS;
  return { ...plan, instances, agents, faults, operations, costs, connectedWithinMs: CONNECTED_WITHIN_MS };
}

/** The stories are used in turn, so that a few seeds cover them all. */
const STORIES: readonly ((drawn: Drawn) => Fault[])[] = [
  instanceDies,
  alone,
  databaseSlow,
  instanceDrains,
  databaseDown,
  allAtOnce,
  othersDefer,
];

function alone(): Fault[] {
  return [];
}

/** The agents that it held arrive at the others as well. */
function instanceDies({ random, instances, at }: Drawn): Fault[] {
  return [
    {
      at: soonAfter(at, random),
      kind: 'instance-killed',
      instance: random.whole(0, instances - 1),
      isPowerless: random.chance(0.5),
      downMs: Math.round(random.between(500, 6_000)),
    },
  ];
}

/**
 * The other instance tells its agents to return later than the usual grace allows, and decides
 * about their servers.
 */
function othersDefer({ random, instances, at }: Drawn): Fault[] {
  return [
    {
      at: at + Math.round(random.between(1_000, 3_000)),
      kind: 'instance-killed',
      instance: random.whole(0, instances - 1),
      isPowerless: random.chance(0.5),
      downMs: Math.round(random.between(20_000, 30_000)),
    },
  ];
}

function databaseSlow({ random, at }: Drawn): Fault[] {
  const extraMs = Math.round(random.between(100, 700));
  return [{ at: at - 1_000, kind: 'database-slow', extraMs, ms: Math.round(random.between(4_000, 12_000)) }];
}

function databaseDown({ random, at }: Drawn): Fault[] {
  const kind = random.pick(['database-down', 'database-frozen'] as const);
  return [{ at: soonAfter(at, random), kind, ms: Math.round(random.between(1_000, 8_000)) }];
}

function instanceDrains({ random, instances, at }: Drawn): Fault[] {
  return [
    {
      at: soonAfter(at, random),
      kind: 'instance-drained',
      instance: random.whole(0, instances - 1),
      downMs: Math.round(random.between(500, 4_000)),
    },
  ];
}

function allAtOnce(drawn: Drawn): Fault[] {
  return [...databaseSlow(drawn), ...instanceDies(drawn), ...instanceDrains(drawn)];
}

function soonAfter(at: number, random: SeededRandom): number {
  return at + Math.round(random.between(-1_000, 3_000));
}
