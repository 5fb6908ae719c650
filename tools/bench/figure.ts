/**
 * A figure of the benchmark and its results. A figure creates what it needs (`BenchContext`),
 * measures, and returns one or more rows of the table. It does not say whether it is met; that
 * follows from its limit. Pure.
 */

import type { Program, ProgramPlan } from '../processes/program.ts';
import type { Floors } from './floors.ts';
import type { Foundation } from './foundation.ts';
import type { Helper, HelperPlan } from './helper.ts';
import type { Zone, ZonePlan } from './zone.ts';

export interface Figure {
  /** The name for `--only`. */
  name: string;
  /** One line for `--help`. */
  says: string;
  /** Approximate duration at full size. */
  seconds: number;
  /**
   * The figure is compared with the floors, which are measured again just before it, because a
   * shared machine changes within minutes.
   */
  isOnFloors?: true;
  measure(context: BenchContext): Promise<readonly Result[]>;
}

export interface Result {
  /** The row's name with its size: `CPU per heartbeat, 10,000 agents`. */
  what: string;
  value: number;
  /** Unit of the value and of the floor: `ms`, `µs`, `KB`, `/s`. */
  unit: string;
  /** The minimum cost of the same work, measured in the same run; `of` names it: `2N + C + H`. */
  floor?: { of: string; value: number };
  limit?: Limit;
  /** What a reader needs to judge the row: percentiles, samples, the load. */
  notes?: readonly string[];
}

/** A limit of value / floor, or of the value itself. */
export type Limit = { on: 'ratio' | 'value' } & ({ atMost: number } | { atLeast: number });

export interface BenchContext {
  /** Uses small sizes, to try the figure out; its numbers mean nothing. */
  isQuick: boolean;
  /** Duration of a figure that shows endurance. */
  minutes: number;
  /** Servers of the figures of push jobs. */
  nodes: number;
  /** How long the figure `snapshot` keeps its snapshot open. */
  snapshotMinutes: number;
  /** How many turns each peer takes next to ours. */
  rounds: number;
  /** Postgres and the bus, shared by all figures of a run. */
  foundation: Foundation;
  floors: Floors;
  /** Directory for the files of a figure; removed at the end. */
  directory: string;
  /** The folder for profiles, if wanted; they are taken after the measurement. */
  profiles: string | undefined;
  /** Aborts when the user wants to stop. */
  signal: AbortSignal;
  /** Prints progress for people. */
  say(text: string): void;
  /**
   * Starts instances on a database of their own and waits until they are ready. They are stopped at
   * the end of the run at the latest.
   */
  startZone(plan?: ZonePlan): Promise<Zone>;
  /** Starts a program of the benchmark as a separate process, stopped in the same way. */
  startHelper(plan: HelperPlan): Promise<Helper>;
  /** Starts any program as a separate process, killed in the same way. */
  startProgram(plan: Pick<ProgramPlan, 'name' | 'command'>): Program;
}

export function ratioOf({ value, floor }: Result): number | undefined {
  return floor === undefined ? undefined : value / floor.value;
}

/** Returns undefined when there is no limit. */
export function isMet(result: Result): boolean | undefined {
  const { limit, value } = result;
  if (limit === undefined) return undefined;
  const measured = limit.on === 'value' ? value : (ratioOf(result) ?? Number.NaN);
  return 'atMost' in limit ? measured <= limit.atMost : measured >= limit.atLeast;
}
