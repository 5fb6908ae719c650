/**
 * Cases that the common plans never reach, or reach in one of hundreds of seeds; `npm run sim --
 * --reached` shows them. Seeds named `rare-N` add two or three of these stories to a common plan,
 * so that the common seeds stay unchanged.
 */
import type { Fault, Operation, Plan } from './plan.ts';
import { SeededRandom } from './seeded-random.ts';

interface Rare {
  faults: Fault[];
  operations: Operation[];
}

interface Drawn {
  random: SeededRandom;
  plan: Plan;
  at: number;
}

export function rareOf(plan: Plan): Rare {
  const random = new SeededRandom(`rare ${plan.seed}`);
  const rare: Rare = { faults: [], operations: [] };
  let left = [...STORIES];
  for (let stories = random.whole(2, 3); stories > 0; stories -= 1) {
    const story = random.pick(left);
    left = left.filter((other) => other !== story);
    const { faults = [], operations = [] } = story({ random, plan, at: Math.round(random.between(8_000, 34_000)) });
    rare.faults.push(...faults);
    rare.operations.push(...operations);
  }
  // Drawn last, so that the rest stays as it was before this story existed.
  if (random.chance(0.5))
    rare.faults.push(...runsDeclaredDead({ random, plan, at: Math.round(random.between(8_000, 34_000)) }));
  return rare;
}

const STORIES: readonly ((drawn: Drawn) => Partial<Rare>)[] = [
  journalsFromBackups,
  askedToLeave,
  allLeave,
  tooSlow,
  startsAndLeavesWithoutDatabase,
  manyTasksAtOnce,
];

/**
 * Each of these agents returns with a journal from before its last session, whose epoch was
 * assigned before.
 */
function journalsFromBackups({ random, plan, at }: Drawn): Partial<Rare> {
  const agents = [0, 1, 2].filter((agent) => agent < plan.agents);
  const restored = (agent: number): Fault => ({
    at: at + Math.round(random.between(0, 3_000)),
    kind: 'agent-restored',
    agent,
    afterMs: Math.round(random.between(1_500, 4_000)),
    downMs: Math.round(random.between(100, 4_000)),
  });
  return { faults: agents.map(restored) };
}

/**
 * The run of one instance, or of all, while they run: their agents are connected, and other
 * instances see their rows without an owner.
 */
function runsDeclaredDead({ random, plan, at }: Drawn): Fault[] {
  const isAll = random.chance(0.5);
  const instances = Array.from({ length: plan.instances }, (_, instance) => instance);
  return (isAll ? instances : [random.pick(instances)]).map((instance) => ({
    at,
    kind: 'run-declared-dead',
    instance,
  }));
}

/** Over REST at another instance, not by a signal. */
function askedToLeave({ random, plan, at }: Drawn): Partial<Rare> {
  const instance = random.whole(0, plan.instances - 1);
  return {
    faults: [{ at, kind: 'instance-asked-to-leave', instance, downMs: Math.round(random.between(500, 4_000)) }],
  };
}

/** The last one has no instance to hand over its agents to. */
function allLeave({ random, at }: Drawn): Partial<Rare> {
  return { faults: [{ at, kind: 'instances-drained', downMs: Math.round(random.between(500, 4_000)) }] };
}

/**
 * An instance that runs and is always late must report that itself, and let others take its agents.
 */
function tooSlow({ random, plan, at }: Drawn): Partial<Rare> {
  const instance = random.whole(0, plan.instances - 1);
  return { faults: [{ at, kind: 'instance-lagging', instance, ms: Math.round(random.between(9_000, 15_000)) }] };
}

/** One instance starts and one leaves while there is no database. */
function startsAndLeavesWithoutDatabase({ random, plan, at }: Drawn): Partial<Rare> {
  const ms = Math.round(random.between(9_000, 15_000));
  const isPowerless = random.chance(0.5);
  return {
    faults: [
      { at, kind: 'database-down', ms },
      { at: at + 1_000, kind: 'instance-killed', instance: 0, isPowerless, downMs: 1_000 },
      { at: at + 1_500, kind: 'instance-drained', instance: plan.instances - 1, downMs: 1_000 },
    ],
  };
}

/** More than an instance handles at once for one server. */
function manyTasksAtOnce({ random, plan, at }: Drawn): Partial<Rare> {
  const agent = random.whole(0, plan.agents - 1);
  const number = plan.operations.length;
  return {
    operations: [{ at, number, kind: 'burst', agent, tasks: random.whole(110, 160), workMs: random.whole(1, 40) }],
  };
}
