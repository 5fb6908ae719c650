/**
 * Seeds named `vms-N`: VMs that are created, stopped, started and deleted in place of most work of
 * a common plan, while their agents and the instances are killed, frozen and cut off. Some are
 * created on two servers at once. The common seeds have no VMs, so that they stay unchanged.
 */
import type { Fault, Operation, Plan } from './plan.ts';
import { SeededRandom } from './seeded-random.ts';

export interface VmWork {
  kind: 'vm';
  agent: number;
  /** Another server on which the same VM is created at the same time. */
  rival: number | undefined;
  steps: { afterMs: number; how: 'stop' | 'start' | 'delete' }[];
}

const FROM_MS = 3_000;
const UNTIL_MS = 34_000;
const KEPT_OPERATIONS = 4;

export function vmsOf(plan: Plan): Plan {
  const random = new SeededRandom(`vms ${plan.seed}`);
  const agents = random.whole(3, 6);
  const instances = random.whole(2, 4);
  const operations = Array.from({ length: random.whole(6, 16) }, (_, index): Operation => {
    const agent = random.whole(0, agents - 1);
    return {
      at: Math.round(random.between(FROM_MS, UNTIL_MS)),
      number: plan.operations.length + index,
      kind: 'vm',
      agent,
      rival: random.chance(0.4) ? (agent + random.whole(1, agents - 1)) % agents : undefined,
      steps: Array.from({ length: random.whole(0, 4) }, () => ({
        afterMs: Math.round(random.between(0, random.chance(0.5) ? 200 : 4_000)),
        how: random.pick(['stop', 'start', 'delete'] as const),
      })),
    };
  });
  const faults = Array.from({ length: random.whole(3, 9) }, (): Fault => {
    const at = Math.round(random.between(FROM_MS + 3_000, UNTIL_MS));
    const ms = Math.round(random.between(300, 8_000));
    const instance = random.whole(0, instances - 1);
    const agent = random.whole(0, agents - 1);
    return random.pick<Fault>([
      { at, kind: 'instance-killed', instance, isPowerless: random.chance(0.5), downMs: ms },
      { at, kind: 'instance-drained', instance, downMs: ms },
      { at, kind: 'instance-frozen', instance, ms },
      { at, kind: 'agent-killed', agent, isPowerless: false, downMs: ms, journal: 'kept' },
      { at, kind: 'agent-killed', agent, isPowerless: false, downMs: ms, journal: 'kept' },
      { at, kind: 'agent-connections-reset', agent },
      { at, kind: 'agent-frozen', agent, ms },
      { at, kind: 'agent-cut-off', agent, direction: 'both', ms },
      { at, kind: 'database-losing-answers', share: random.between(0.05, 0.3), ms },
      { at, kind: 'bus-killed', ms },
    ]);
  }).sort((one, other) => one.at - other.at);
  const kept = plan.operations.filter(({ at, kind }) => at < UNTIL_MS && kind === 'lock').slice(0, KEPT_OPERATIONS);
  return { ...plan, agents, instances, legacyAgents: 0, faults, operations: [...kept, ...operations] };
}
