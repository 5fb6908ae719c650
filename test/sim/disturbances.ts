/**
 * What has failed recently, and which processes it affects: this decides which bounds of I1 and I5
 * apply.
 */
import { type Fault, lengthOf } from './plan.ts';

/** The bus affects nothing (law 1), arrivals neither (law 11), and a drain less than a death. */
export type Disturbance = 'agents' | 'arrivals' | 'instances' | 'drains' | 'network' | 'database' | 'bus';

/** All faults of a kind, those of one process, or those of all processes. */
export type Concern = Disturbance | `${Disturbance}:${string}`;

export class Disturbances {
  readonly #until = new Map<Concern, number>();

  /** `whom` is one process's name; if omitted, all are affected. */
  note(kind: Disturbance, until: number, whom = '*'): void {
    for (const concern of [kind, `${kind}:${whom}`] as const)
      this.#until.set(concern, Math.max(until, this.#until.get(concern) ?? 0));
  }

  /** When the last of these ended, or will end. */
  until(...concerns: Concern[]): number {
    return Math.max(0, ...concerns.map((concern) => this.#until.get(concern) ?? 0));
  }
}

export function disturbanceOf({ kind }: Fault): Disturbance {
  if (kind === 'agents-arriving') return 'arrivals';
  if (kind === 'agent-connections-reset' || kind === 'agent-cut-off') return 'network';
  if (kind.startsWith('agent-') || kind === 'legacy-agent-silent') return 'agents';
  if (kind.startsWith('bus-') || kind === 'instance-without-bus') return 'bus';
  if (kind.startsWith('database-') || kind === 'instance-without-database') return 'database';
  if (kind === 'instance-without-agents' || kind.startsWith('network-') || kind.startsWith('frames-')) return 'network';
  return kind === 'instance-drained' ? 'drains' : 'instances';
}

/** A death has no duration: what matters is how long it takes to be noticed. */
export function disturbsMs(fault: Fault): number {
  return ['instance-killed', 'instance-added', 'rack-lost'].includes(fault.kind) ? 0 : lengthOf(fault);
}
