/**
 * Seeds named `workflows-N`: jobs that reboot servers, some of which are cancelled, in place of
 * most work of a common plan, while agents and the instances that carry out the jobs are killed,
 * frozen and cut off. The common seeds have no workflow jobs, so that they stay unchanged.
 */
import type { Fault, Operation, Plan } from './plan.ts';
import { SeededRandom } from './seeded-random.ts';

export interface RebootWork {
  kind: 'reboot';
  agent: number;
  drain: boolean;
  /** Canceled this long after it was accepted, unless it has ended: no job takes an hour here. */
  cancelAfterMs: number;
}

const FROM_MS = 3_000;
const UNTIL_MS = 32_000;
const KEPT_OPERATIONS = 10;
/** Longer than a machine is away. */
const PATIENCE_MS = [14_000, 20_000] as const;

export function workflowsOf(plan: Plan): Plan {
  const random = new SeededRandom(`workflows ${plan.seed}`);
  const agents = random.whole(3, 5);
  const instances = random.whole(2, 4);
  const reboots = Array.from({ length: random.whole(5, 12) }, (_, index): Operation => {
    const isHasty = random.chance(0.35);
    return {
      at: Math.round(random.between(FROM_MS, UNTIL_MS)),
      number: plan.operations.length + index,
      kind: 'reboot',
      agent: random.whole(0, agents - 1),
      drain: random.chance(0.6),
      cancelAfterMs: Math.round(isHasty ? random.between(0, 3_000) : random.between(...PATIENCE_MS)),
    };
  });
  // Work that a drain waits for.
  const kept = plan.operations
    .filter(({ at, kind }) => at < UNTIL_MS && (kind === 'task' || kind === 'burst'))
    .slice(0, KEPT_OPERATIONS)
    .map((operation) => ('agent' in operation ? { ...operation, agent: operation.agent % agents } : operation));
  const faults = Array.from({ length: random.whole(3, 9) }, () => faultOf(random, { agents, instances })).sort(
    (one, other) => one.at - other.at,
  );
  return { ...plan, agents, instances, legacyAgents: 0, faults, operations: [...kept, ...reboots] };
}

function faultOf(random: SeededRandom, { agents, instances }: { agents: number; instances: number }): Fault {
  const at = Math.round(random.between(FROM_MS + 3_000, UNTIL_MS));
  const ms = Math.round(random.between(300, 8_000));
  const instance = random.whole(0, instances - 1);
  const agent = random.whole(0, agents - 1);
  return random.pick<Fault>([
    { at, kind: 'instance-killed', instance, isPowerless: random.chance(0.5), downMs: ms },
    { at, kind: 'instance-drained', instance, downMs: ms },
    { at, kind: 'instance-frozen', instance, ms: ms + 6_000 },
    { at, kind: 'run-declared-dead', instance },
    { at, kind: 'agent-killed', agent, isPowerless: false, downMs: ms, journal: 'kept' },
    { at, kind: 'agent-killed', agent, isPowerless: true, downMs: ms + 2_000, journal: 'kept' },
    { at, kind: 'agent-connections-reset', agent },
    { at, kind: 'agent-frozen', agent, ms },
    { at, kind: 'agent-cut-off', agent, direction: 'both', ms: 2 * ms },
    { at, kind: 'agent-clock-stepped', agent, ms: Math.round(random.between(-3_600_000, 3_600_000)) },
    { at, kind: 'database-losing-answers', share: random.between(0.05, 0.3), ms },
    { at, kind: 'database-failing', share: random.between(0.05, 0.3), ms },
    { at, kind: 'bus-killed', ms },
  ]);
}
