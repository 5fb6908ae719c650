/**
 * Seeds named `annealer-N`: deployments whose noderoles run on the world's servers in the order of
 * their graphs, in place of most work of a common plan, while agents and the instances that carry
 * the graphs out are killed, frozen and cut off. Data is changed during runs, and noderoles fail,
 * are tried again, proposed again and deleted. The common seeds have no deployments, so that they
 * stay unchanged.
 */
import type { Fault, Operation, Plan } from './plan.ts';
import { SeededRandom } from './seeded-random.ts';

interface PlannedRole {
  name: string;
  jig: 'noop' | 'script';
  requires: string[];
  /** A run takes so long. */
  workMs: number;
  retry: number;
  isDestructive: boolean;
}

export type DeploymentAction = 'data' | 'repair' | 'retry' | 'propose' | 'delete' | 'bind';

export interface DeploymentWork {
  kind: 'deployment';
  roles: PlannedRole[];
  /** Noderoles of these roles are asked for; those that they require follow. */
  bindings: { role: string; agents: number[]; fails: boolean }[];
  actions: { afterMs: number; how: DeploymentAction; role: string; agent: number }[];
}

const FROM_MS = 3_000;
const UNTIL_MS = 30_000;
const KEPT_OPERATIONS = 4;

export function deploymentsOf(plan: Plan): Plan {
  const random = new SeededRandom(`deployments ${plan.seed}`);
  const agents = random.whole(2, 4);
  const instances = random.whole(2, 3);
  const first = plan.operations.length;
  const deployments = Array.from({ length: random.whole(1, 3) }, (_, index): Operation => {
    const number = first + index;
    return { at: Math.round(random.between(FROM_MS, FROM_MS + 9_000)), number, ...workOf(random, number, agents) };
  });
  const kept = plan.operations
    .filter(({ at, kind }) => at < UNTIL_MS && (kind === 'task' || kind === 'burst'))
    .slice(0, KEPT_OPERATIONS)
    .map((operation) => ('agent' in operation ? { ...operation, agent: operation.agent % agents } : operation));
  const faults = Array.from({ length: random.whole(2, 8) }, () => faultOf(random, { agents, instances })).sort(
    (one, other) => one.at - other.at,
  );
  return { ...plan, agents, instances, legacyAgents: 0, faults, operations: [...kept, ...deployments] };
}

/** A role requires one or two of those before it, so that the graphs branch and join. */
function workOf(random: SeededRandom, number: number, agents: number): DeploymentWork {
  const roles: PlannedRole[] = [];
  for (let each = random.whole(3, 5); each > 0; each -= 1) {
    const before = roles.slice(-2).map(({ name }) => name);
    roles.push({
      name: `r${number}-${roles.length}`,
      jig: random.chance(0.25) ? 'noop' : 'script',
      requires: before.filter(() => random.chance(0.65)),
      workMs: Math.round(random.chance(0.5) ? random.between(1, 300) : random.between(300, 3_000)),
      retry: random.pick([0, 0, 1, 2]),
      isDestructive: random.chance(0.15),
    });
  }
  const all = Array.from({ length: agents }, (_, agent) => agent);
  const bindings = roles.map(({ name }) => ({
    role: name,
    agents: all.filter(() => random.chance(0.6)),
    fails: random.chance(0.25),
  }));
  const actions = Array.from({ length: random.whole(3, 9) }, () => ({
    afterMs: Math.round(random.between(100, 2_500)),
    how: random.pick(['data', 'data', 'data', 'repair', 'retry', 'propose', 'delete', 'bind'] as const),
    role: random.pick(roles).name,
    agent: random.whole(0, agents - 1),
  }));
  return { kind: 'deployment', roles, bindings: bindings.filter((one) => one.agents.length > 0), actions };
}

function faultOf(random: SeededRandom, { agents, instances }: { agents: number; instances: number }): Fault {
  const at = Math.round(random.between(FROM_MS + 2_000, UNTIL_MS));
  const ms = Math.round(random.between(300, 6_000));
  const instance = random.whole(0, instances - 1);
  const agent = random.whole(0, agents - 1);
  return random.pick<Fault>([
    { at, kind: 'instance-killed', instance, isPowerless: random.chance(0.5), downMs: ms },
    { at, kind: 'instance-killed', instance, isPowerless: false, downMs: ms },
    { at, kind: 'instance-drained', instance, downMs: ms },
    { at, kind: 'instance-frozen', instance, ms: ms + 6_000 },
    { at, kind: 'run-declared-dead', instance },
    { at, kind: 'agent-killed', agent, isPowerless: random.chance(0.3), downMs: ms, journal: 'kept' },
    { at, kind: 'agent-connections-reset', agent },
    { at, kind: 'agent-frozen', agent, ms },
    { at, kind: 'agent-cut-off', agent, direction: 'both', ms: 2 * ms },
    { at, kind: 'database-losing-answers', share: random.between(0.05, 0.3), ms },
    { at, kind: 'database-failing', share: random.between(0.05, 0.3), ms },
    { at, kind: 'bus-killed', ms },
  ]);
}
