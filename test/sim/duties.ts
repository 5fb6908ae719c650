/**
 * Seeds named `duties-N`: duties that last some seconds each, in place of most work of a common
 * plan, while the instances that hold them are killed, frozen, drained, declared dead, or lose the
 * database or the bus. The common seeds have no duties, so that they stay unchanged.
 */
import type { Fault, Operation, Plan } from './plan.ts';
import { SeededRandom } from './seeded-random.ts';

interface Drawn {
  random: SeededRandom;
  at: number;
  instance: number;
  ms: number;
}

const FAULTS_FROM_MS = 6_000;
const FAULTS_UNTIL_MS = 30_000;
const KEPT_OPERATIONS = 8;

export function dutiesOf(plan: Plan): Plan {
  const random = new SeededRandom(`duties ${plan.seed}`);
  const instances = random.whole(2, 4);
  const faults = Array.from({ length: random.whole(4, 9) }, () =>
    random.pick(FAULTS)({
      random,
      at: Math.round(random.between(FAULTS_FROM_MS, FAULTS_UNTIL_MS)),
      instance: random.whole(0, instances - 1),
      ms: Math.round(random.between(500, 12_000)),
    }),
  ).sort((one, other) => one.at - other.at);
  const kept = plan.operations.filter(({ at }) => at < FAULTS_UNTIL_MS).slice(0, KEPT_OPERATIONS);
  const duties = Array.from(
    { length: random.whole(6, 16) },
    (_, index): Operation => ({
      at: Math.round(random.between(3_000, FAULTS_UNTIL_MS)),
      number: plan.operations.length + index,
      kind: 'duty',
      steps: random.whole(1, 12),
      stepMs: Math.round(random.between(50, 1_500)),
      failures: random.chance(0.2) ? random.whole(1, 2) : 0,
    }),
  );
  return { ...plan, instances, agents: 3, legacyAgents: 0, faults, operations: [...kept, ...duties] };
}

const FAULTS: readonly ((drawn: Drawn) => Fault)[] = [
  ({ random, at, instance, ms }) => ({
    at,
    kind: 'instance-killed',
    instance,
    isPowerless: random.chance(0.5),
    downMs: ms,
  }),
  ({ at, instance, ms }) => ({ at, kind: 'instance-drained', instance, downMs: ms }),
  ({ at, instance, ms }) => ({ at, kind: 'instance-frozen', instance, ms }),
  ({ at, instance }) => ({ at, kind: 'run-declared-dead', instance }),
  ({ at, instance, ms }) => ({ at, kind: 'instance-without-database', instance, ms }),
  ({ at, instance, ms }) => ({ at, kind: 'instance-without-bus', instance, ms }),
  ({ random, at, ms }) => ({ at, kind: 'database-losing-answers', share: random.between(0.05, 0.4), ms }),
  ({ random, at, ms }) => ({ at, kind: 'database-failing', share: random.between(0.05, 0.3), ms }),
  ({ at, ms }) => ({ at, kind: 'database-down', ms }),
  ({ at, ms }) => ({ at, kind: 'bus-killed', ms }),
];
