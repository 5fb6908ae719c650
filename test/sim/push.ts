/**
 * Seeds named `push-N`: push jobs in place of most work of a common plan, while all that the plan's
 * faults and some more do to their agents and instances. The common seeds have no push jobs, so
 * that they stay unchanged.
 */
import type { Fault, Operation, Plan } from './plan.ts';
import { SeededRandom } from './seeded-random.ts';

export interface PushWork {
  kind: 'push';
  agents: number[];
  quorum: number;
  /** Each server takes one of them, by its number. */
  workMs: number[];
  exitCodes: number[];
  concurrency: number | undefined;
  maxFailures: number | undefined;
  votingTimeoutMs: number;
  runTimeoutMs: number;
  abortTimeoutMs: number;
  aborts: { afterMs: number; how: 'soft' | 'hard' }[];
  /** The queue in which the job waits for its ticket. */
  ticketQueue: number | undefined;
  /**
   * What callers ask of the job while it goes on, in this order; what comes too late is refused.
   */
  changes: PushChange[];
}

export type PushChange = { afterMs: number } & (
  | {
      kind: 'limits';
      body: { quorum?: number; concurrency?: number; voting_timeout_ms?: number; run_timeout_ms?: number };
    }
  | { kind: 'add'; agents: number[] }
  | { kind: 'abort-nodes'; agents: number[]; how: 'soft' | 'hard' }
);

/** How long a job waits for its ticket. */
export const TICKET_TIMEOUT_MS = 15_000;

const FROM_MS = 3_000;
const UNTIL_MS = 34_000;
const KEPT_OPERATIONS = 6;
/** The duration of work that ends only when it is ended. */
const ENDLESS_MS = 600_000;

export function pushOf(plan: Plan): Plan {
  const random = new SeededRandom(`push ${plan.seed}`);
  const kept = plan.operations.filter(({ at }) => at < UNTIL_MS).slice(0, KEPT_OPERATIONS);
  const later = new SeededRandom(`push changes ${plan.seed}`);
  const operations = Array.from({ length: random.whole(6, 16) }, (_, index) => ({
    ...operationOf({ random, agents: plan.agents, number: plan.operations.length + index }),
    ...laterOf(later, plan.agents),
  }));
  const more: Fault[] = Array.from({ length: random.whole(1, 5) }, () => {
    const at = Math.round(random.between(FROM_MS + 3_000, UNTIL_MS));
    const ms = Math.round(random.between(300, 8_000));
    const instance = random.whole(0, plan.instances - 1);
    const agent = random.whole(0, plan.agents - 1);
    return random.pick<Fault>([
      { at, kind: 'instance-killed', instance, isPowerless: random.chance(0.5), downMs: ms },
      { at, kind: 'run-declared-dead', instance },
      { at, kind: 'agent-killed', agent, isPowerless: random.chance(0.3), downMs: ms, journal: 'kept' },
      { at, kind: 'agent-connections-reset', agent },
      { at, kind: 'agent-frozen', agent, ms },
      // Longer than a lease: meanwhile other instances carry out its jobs.
      { at, kind: 'instance-frozen', instance, ms: ms + 6_000 },
      { at, kind: 'instance-without-database', instance, ms: ms + 6_000 },
    ]);
  });
  const faults = [...plan.faults, ...more].sort((one, other) => one.at - other.at);
  return { ...plan, faults, operations: [...kept, ...operations] };
}

/**
 * Changes use a random sequence of their own, so the rest of the plan is the same as without them.
 */
function laterOf(random: SeededRandom, agents: number): Pick<PushWork, 'ticketQueue' | 'changes'> {
  const ticketQueue = random.chance(0.25) ? random.whole(0, 1) : undefined;
  const count = random.chance(0.5) ? random.whole(1, 3) : 0;
  return { ticketQueue, changes: Array.from({ length: count }, () => changeOf(random, agents)) };
}

function changeOf(random: SeededRandom, agents: number): PushChange {
  const afterMs = Math.round(random.between(0, random.chance(0.5) ? 300 : 3_000));
  const some = Array.from({ length: agents }, (_, agent) => agent).filter(() => random.chance(0.4));
  const chosen = some.length === 0 ? [random.whole(0, agents - 1)] : some;
  const kind = random.pick(['limits', 'limits', 'add', 'abort-nodes'] as const);
  if (kind === 'add') return { afterMs, kind, agents: chosen };
  if (kind === 'abort-nodes') return { afterMs, kind, agents: chosen, how: random.pick(['soft', 'hard'] as const) };
  const body = random.pick([
    { quorum: random.whole(1, 4) },
    { concurrency: random.whole(1, 3) },
    { voting_timeout_ms: random.whole(500, 6_000) },
    { run_timeout_ms: random.whole(500, 20_000) },
  ]);
  return { afterMs, kind, body };
}

type FirstWork = Omit<Extract<Operation, { kind: 'push' }>, 'ticketQueue' | 'changes'>;

function operationOf({ random, agents, number }: { random: SeededRandom; agents: number; number: number }): FirstWork {
  const all = Array.from({ length: agents }, (_, agent) => agent);
  const some = all.filter(() => random.chance(0.7));
  const nodes = some.length === 0 ? [random.pick(all)] : some;
  const isWhole = random.chance(0.4);
  const isAborted = random.chance(0.35);
  return {
    at: Math.round(random.between(FROM_MS, UNTIL_MS)),
    number,
    kind: 'push',
    agents: nodes,
    quorum: isWhole ? nodes.length : random.whole(1, nodes.length),
    workMs: Array.from({ length: 3 }, () => workMsOf(random)),
    exitCodes: Array.from({ length: 5 }, () => (random.chance(0.15) ? random.whole(1, 9) : 0)),
    concurrency: random.chance(0.3) ? random.whole(1, 3) : undefined,
    maxFailures: random.chance(0.3) ? random.whole(0, 2) : undefined,
    votingTimeoutMs: random.whole(500, 6_000),
    runTimeoutMs: random.chance(0.25) ? random.whole(500, 3_000) : random.whole(4_000, 20_000),
    abortTimeoutMs: random.chance(0.25) ? random.whole(9_000, 12_000) : random.whole(500, 5_000),
    aborts: isAborted ? abortsOf(random) : [],
  };
}

function workMsOf(random: SeededRandom): number {
  if (random.chance(0.1)) return ENDLESS_MS;
  return Math.round(random.chance(0.5) ? random.between(1, 200) : random.between(200, 8_000));
}

function abortsOf(random: SeededRandom): PushWork['aborts'] {
  const afterMs = Math.round(random.between(0, random.chance(0.4) ? 200 : 4_000));
  const how = random.pick(['soft', 'hard'] as const);
  if (how === 'hard' || random.chance(0.5)) return [{ afterMs, how }];
  return [
    { afterMs, how },
    { afterMs: Math.round(random.between(100, 2_000)), how: 'hard' },
  ];
}
