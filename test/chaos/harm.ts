/** The types of the faults (`faults.ts`): a kind chooses its target and says what it does to it. */
import type { Random } from '../../lib/platform/random.ts';
import type { Zone } from '../support/fleet-harness.ts';
import type { Health } from './health.ts';
import type { Fault } from './history.ts';

export interface Stage {
  zone: Zone;
  health: Health;
  random: Random;
  simulated: readonly string[];
}

type About = Pick<Fault, 'part' | 'servers' | 'codes' | 'instance' | 'line' | 'dead' | 'moves' | 'crowd'>;

/** What is about to happen to a certain target. */
export interface Harm extends Partial<About> {
  part: About['part'];
  lastsMs: number;
  /** After that until the dead servers are detected, but no longer than this. */
  untilSeenMs?: number;
  /** An agent that connects to the instance meanwhile is cut off as well. */
  cutsOffNewcomers?: boolean;
  begin(): Promise<void> | void;
  /** Undoes the fault; the walk waits for parts that need time to recover. */
  end(): Promise<void> | void;
  /** Called when the zone has recovered. */
  after?(): Promise<void> | void;
}

export interface FaultKind {
  name: string;
  prepare(stage: Stage): Harm;
}
