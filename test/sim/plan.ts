/**
 * The plan of a seed: the size of the world, its faults and their times, and its workload. Plain
 * data, made before the run, so that a part can be left out while the rest stays the same (run.ts).
 */
import { arrivingOf } from './arriving.ts';
import { type DeploymentWork, deploymentsOf } from './deployments.ts';
import { dutiesOf } from './duties.ts';
import { type PushWork, pushOf } from './push.ts';
import { rareOf } from './rare.ts';
import { ANNEALER, ARRIVING, DUTIES, PUSH, RARE, VMS, WORKFLOWS } from './seed-kinds.ts';
import { SeededRandom } from './seeded-random.ts';
import { type VmWork, vmsOf } from './vms.ts';
import { type RebootWork, workflowsOf } from './workflows.ts';

/** Times are in milliseconds of virtual time; `instance` and `agent` are numbers. */
export type Fault = { at: number } & (
  | { kind: 'instance-killed'; instance: number; isPowerless: boolean; downMs: number }
  | { kind: 'instance-frozen'; instance: number; ms: number }
  /** The instance that is sent a wide answer next, in the middle of it. */
  | { kind: 'reader-frozen'; ms: number }
  | { kind: 'instance-drained'; instance: number; downMs: number }
  | { kind: 'instance-asked-to-leave'; instance: number; downMs: number }
  /** Servers that did not exist before. */
  | { kind: 'agents-arriving'; agents: number; ms: number }
  | { kind: 'instances-drained'; downMs: number }
  | { kind: 'instance-lagging'; instance: number; ms: number }
  | { kind: 'instance-added' }
  /** The instance's run is declared dead while it runs and holds agents, without a lapsed lease. */
  | { kind: 'run-declared-dead'; instance: number }
  | { kind: 'rack-lost'; instance: number; instanceDownMs: number; downMs: number }
  | { kind: 'instance-without-database'; instance: number; ms: number }
  | { kind: 'instance-without-bus'; instance: number; ms: number }
  | { kind: 'instance-without-agents'; instance: number; direction: Direction; ms: number }
  | {
      kind: 'agent-killed';
      agent: number;
      isPowerless: boolean;
      downMs: number;
      journal: 'kept' | 'lost' | 'rolled-back';
    }
  | { kind: 'agent-restored'; agent: number; afterMs: number; downMs: number }
  | { kind: 'agent-frozen'; agent: number; ms: number }
  | { kind: 'agent-stopped'; agent: number; downMs: number }
  | { kind: 'agent-clock-stepped'; agent: number; ms: number }
  | { kind: 'agent-cut-off'; agent: number; direction: Direction; ms: number }
  | { kind: 'agent-connections-reset'; agent: number }
  | { kind: 'legacy-agent-silent'; agent: number; ms: number }
  | { kind: 'network-slow'; extraMs: number; ms: number }
  | { kind: 'network-losing'; loss: number; ms: number }
  | { kind: 'frames-repeated'; share: number; ms: number }
  | { kind: 'bus-killed'; ms: number }
  | { kind: 'bus-frozen'; ms: number }
  | { kind: 'bus-losing'; loss: number; ms: number }
  | { kind: 'database-down'; ms: number }
  | { kind: 'database-frozen'; ms: number }
  | { kind: 'database-slow'; extraMs: number; ms: number }
  | { kind: 'database-failing'; share: number; ms: number }
  | { kind: 'database-losing-answers'; share: number; ms: number }
);
export type FaultKind = Fault['kind'];
export type Direction = 'both' | 'in' | 'out';

export type Operation = { at: number; number: number } & (
  | {
      kind: 'task';
      agent: number;
      workMs: number;
      /** The size of its parameters besides the script. */
      paramsBytes: number;
      exitCode: number;
      timeoutMs: number;
      idempotent: boolean;
      key: boolean;
      cancelAfterMs: number | undefined;
      waits: number;
    }
  | {
      kind: 'lock';
      queue: number;
      holdMs: number;
      expiresInS: number;
      holder: 'releases' | 'renews' | 'dies' | 'deletes';
    }
  | { kind: 'task-under-lock'; agent: number; workMs: number }
  | { kind: 'burst'; agent: number; tasks: number; workMs: number }
  | {
      kind: 'duty';
      steps: number;
      stepMs: number;
      /** How often its work fails. */
      failures: number;
    }
  | PushWork
  | VmWork
  | RebootWork
  | DeploymentWork
);

export interface Plan {
  seed: string;
  profile: Profile;
  instances: number;
  agents: number;
  /** Agents that have no link. */
  legacyAgents: number;
  faults: Fault[];
  operations: Operation[];
  /** The time after which no fault starts. */
  calmAt: number;
  /** Every server has a session by then, counted from `calmAt`. */
  connectedWithinMs: number;
  costs: Costs;
}

/** How long an instance's event loop is busy with received data. */
export interface Costs {
  /** Time per agent that is admitted. */
  greetMs: number;
  /** Time per agent that is asked to return later. */
  refusalMs: number;
  frameMs: number;
}

const FREE: Costs = { greetMs: 0, refusalMs: 0, frameMs: 0 };
/** The longest bound of I1, and a second for the checks. */
const CONNECTED_WITHIN_MS = 32_300;

export const PROFILES = ['agents', 'instances', 'network', 'database', 'everything'] as const;
export type Profile = (typeof PROFILES)[number];

const FAULTS_FROM_MS = 8_000;
const FAULTS_UNTIL_MS = 40_000;
const LEAVES: readonly FaultKind[] = ['instance-drained', 'instance-asked-to-leave', 'instances-drained'];
const LEAVES_WITHIN_MS = 20_000;
/** More than fits the buffers of a connection to the database (`unread-answers.ts`). */
const WIDE_BYTES = 100_000;
/** The time in which it must be sent something; otherwise there is no fault. */
export const READER_WITHIN_MS = 2_000;
/** The duration of work that ends only when it is ended. */
const ENDLESS_MS = 600_000;

const KINDS: Record<Exclude<Profile, 'everything'>, FaultKind[]> = {
  agents: [
    'agent-killed',
    'agent-killed',
    'agent-frozen',
    'agent-stopped',
    'agent-clock-stepped',
    'agent-connections-reset',
    'agent-cut-off',
    'legacy-agent-silent',
  ],
  instances: [
    'instance-killed',
    'instance-killed',
    'instance-frozen',
    'instance-drained',
    'instance-added',
    'rack-lost',
  ],
  network: [
    'instance-without-bus',
    'instance-without-agents',
    'agent-cut-off',
    'agent-connections-reset',
    'network-slow',
    'network-losing',
    'frames-repeated',
    'bus-killed',
    'bus-frozen',
    'bus-losing',
  ],
  database: [
    'instance-without-database',
    'database-down',
    'database-frozen',
    'database-slow',
    'database-failing',
    'database-losing-answers',
  ],
};

export function planOf(seed: string): Plan {
  const plan = commonPlanOf(seed);
  const changes = [
    { kind: ARRIVING, change: arrivingOf, atLeastMs: 0 },
    { kind: DUTIES, change: dutiesOf },
    { kind: PUSH, change: pushOf },
    { kind: VMS, change: vmsOf },
    { kind: WORKFLOWS, change: workflowsOf },
    { kind: ANNEALER, change: deploymentsOf },
  ];
  for (const { kind, change, atLeastMs } of changes) {
    if (!seed.startsWith(kind)) continue;
    const changed = change(plan);
    return { ...changed, calmAt: calmAfter(changed.faults, atLeastMs) };
  }
  if (!seed.startsWith(RARE)) return plan;
  const { faults, operations } = rareOf(plan);
  const all = [...plan.faults, ...faults].sort((one, other) => one.at - other.at);
  return { ...plan, faults: all, operations: [...plan.operations, ...operations], calmAt: calmAfter(all) };
}

function commonPlanOf(seed: string): Plan {
  const random = new SeededRandom(`plan ${seed}`);
  const profile = random.pick(PROFILES);
  const isLarge = random.chance(0.08);
  const instances = isLarge ? 1 : random.whole(2, 4);
  const agents = isLarge ? random.whole(30, 40) : random.whole(3, 8);
  const kinds = profile === 'everything' ? Object.values(KINDS).flat() : KINDS[profile];
  const faults = Array.from({ length: random.whole(3, 14) }, () =>
    faultOf(random.pick(kinds), { random, instances, agents }),
  ).sort((one, other) => one.at - other.at);
  const operations = Array.from({ length: random.whole(10, 40) }, (_, number) =>
    operationOf(number, { random, agents }),
  );
  const wide = new SeededRandom(`wide ${seed}`);
  widen(operations, wide);
  // The agents of one instance are far too many for it once there is another.
  if (isLarge) faults.unshift({ at: 7_000, kind: 'instance-added' });
  const legacyAgents = random.whole(0, 2);
  if (wide.chance(0.25)) stopReader({ faults, operations, agents }, wide);
  const calmAt = calmAfter(faults);
  const untroubled = { connectedWithinMs: CONNECTED_WITHIN_MS, costs: FREE };
  return { seed, profile, instances, agents, legacyAgents, faults, operations, calmAt, ...untroubled };
}

function calmAfter(faults: readonly Fault[], atLeast = FAULTS_UNTIL_MS): number {
  return Math.max(atLeast, ...faults.map((fault) => fault.at + lengthOf(fault))) + 1;
}

interface Drawn {
  random: SeededRandom;
  instances: number;
  agents: number;
}

function faultOf(kind: FaultKind, { random, instances, agents }: Drawn): Fault {
  const at = Math.round(random.between(FAULTS_FROM_MS, FAULTS_UNTIL_MS));
  const instance = random.whole(0, instances - 1);
  const agent = random.whole(0, agents - 1);
  const ms = Math.round(random.chance(0.3) ? random.between(200, 2000) : random.between(2000, 14_000));
  const share = Number(random.between(0.02, 0.3).toFixed(3));
  const direction = random.pick<Direction>(['both', 'in', 'out']);
  const isPowerless = random.chance(0.3);
  switch (kind) {
    case 'instance-killed':
      return { at, kind, instance, isPowerless, downMs: ms };
    case 'instance-drained':
      return { at, kind, instance, downMs: ms };
    case 'instance-added':
      return { at, kind };
    case 'instance-asked-to-leave':
    case 'instances-drained':
    case 'instance-lagging':
    case 'agent-restored':
    case 'run-declared-dead':
      throw new Error(`${kind} is of a rare seed`);
    case 'agents-arriving':
      throw new Error(`${kind} is of another kind of seed`);
    case 'reader-frozen':
      throw new Error(`${kind} goes with wide tasks`);
    case 'rack-lost':
      return { at, kind, instance, instanceDownMs: ms, downMs: ms + 42_000 };
    case 'instance-frozen':
    case 'instance-without-database':
    case 'instance-without-bus':
      return { at, kind, instance, ms };
    case 'instance-without-agents':
      return { at, kind, instance, direction, ms };
    case 'agent-killed':
      return {
        at,
        kind,
        agent,
        isPowerless,
        downMs: ms,
        journal: random.pick(['kept', 'kept', 'kept', 'lost', 'rolled-back']),
      };
    case 'agent-frozen':
      return { at, kind, agent, ms };
    case 'agent-stopped':
      return { at, kind, agent, downMs: ms + 10_000 };
    case 'legacy-agent-silent':
      return { at, kind, agent, ms: ms + 14_000 };
    case 'agent-clock-stepped':
      return { at, kind, agent, ms: Math.round(random.between(-3_600_000, 3_600_000)) };
    case 'agent-cut-off':
      return { at, kind, agent, direction, ms };
    case 'agent-connections-reset':
      return { at, kind, agent };
    case 'network-slow':
    case 'database-slow':
      return { at, kind, extraMs: Math.round(random.between(20, 700)), ms };
    case 'network-losing':
    case 'bus-losing':
      return { at, kind, loss: kind === 'bus-losing' ? Math.min(1, share * 4) : share, ms };
    case 'frames-repeated':
    case 'database-failing':
    case 'database-losing-answers':
      return { at, kind, share, ms };
    case 'bus-killed':
    case 'bus-frozen':
    case 'database-down':
    case 'database-frozen':
      return { at, kind, ms };
    default:
      return kind satisfies never;
  }
}

/** How long the fault itself lasts. */
export function lengthOf(fault: Fault): number {
  if (fault.kind === 'reader-frozen') return READER_WITHIN_MS + fault.ms;
  if (fault.kind === 'agent-restored') return fault.afterMs + fault.downMs;
  if ('downMs' in fault) return LEAVES.includes(fault.kind) ? fault.downMs + LEAVES_WITHIN_MS : fault.downMs;
  return 'ms' in fault && fault.kind !== 'agent-clock-stepped' ? fault.ms : 0;
}

function operationOf(number: number, { random, agents }: Pick<Drawn, 'random' | 'agents'>): Operation {
  const at = Math.round(random.between(3_000, FAULTS_UNTIL_MS + 5_000));
  const agent = random.whole(0, agents - 1);
  const isCancelled = random.chance(0.2);
  const isShort = random.chance(0.15);
  const isEndless = (isCancelled || isShort) && random.chance(0.6);
  const workMs = Math.round(
    isEndless ? ENDLESS_MS : random.chance(0.5) ? random.between(1, 100) : random.between(100, 6_000),
  );
  const kind = random.pick(['task', 'task', 'task', 'lock', 'lock', 'task-under-lock'] as const);
  if (kind === 'task-under-lock') return { at, number, kind, agent, workMs: Math.min(workMs, 4_000) };
  if (kind === 'lock') {
    return {
      at,
      number,
      kind,
      queue: random.whole(0, 2),
      holdMs: Math.round(random.between(10, 3_000)),
      expiresInS: random.whole(3, 12),
      holder: random.pick(['releases', 'releases', 'renews', 'dies', 'deletes']),
    };
  }
  return {
    at,
    number,
    kind,
    agent,
    workMs,
    paramsBytes: 0,
    exitCode: random.chance(0.2) ? random.whole(1, 9) : 0,
    timeoutMs: isShort ? random.whole(500, 3_000) : isEndless ? ENDLESS_MS : 15_000,
    idempotent: random.chance(0.3),
    // Nobody could cancel a task whose answer was lost, without a key to repeat the request.
    key: random.chance(0.5) || isEndless,
    cancelAfterMs: isCancelled ? cancelTime(random.between(0, 4_000)) : undefined,
    waits: random.whole(1, 3),
  };
}

/**
 * Adds wide answers. They use a random sequence of their own, so the rest of the plan is the same
 * as without them.
 */
function widen(operations: readonly Operation[], random: SeededRandom): void {
  for (const operation of operations)
    if (operation.kind === 'task' && random.chance(0.3)) operation.paramsBytes = WIDE_BYTES;
}

/** An instance is stopped while it is sent the tasks that it has claimed. */
function stopReader(
  { faults, operations, agents }: Pick<Plan, 'faults' | 'operations' | 'agents'>,
  random: SeededRandom,
): void {
  const at = Math.round(random.between(FAULTS_FROM_MS, FAULTS_UNTIL_MS));
  faults.push({ at, kind: 'reader-frozen', ms: Math.round(random.between(2_000, 14_000)) });
  faults.sort((one, other) => one.at - other.at);
  for (let agent = 0; agent < Math.min(agents, 3); agent++)
    operations.push({
      at: at + Math.round(random.between(50, 500)),
      number: operations.length,
      kind: 'task',
      agent,
      workMs: 50,
      paramsBytes: WIDE_BYTES,
      exitCode: 0,
      timeoutMs: 15_000,
      idempotent: false,
      key: true,
      cancelAfterMs: undefined,
      waits: 1,
    });
}

/** Soon, or after the waiting callers have given up once. */
function cancelTime(drawnMs: number): number {
  return Math.round(drawnMs < 3_000 ? drawnMs : 21_000 + (drawnMs - 3_000) * 9);
}
