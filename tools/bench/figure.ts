/**
 * What a figure of the benchmark is, and what it comes out with. A figure makes what it needs (`BenchContext`), measures,
 * and returns one row of the table or several; it says nothing of being met: that follows from its limit. Pure.
 */

import type { Program, ProgramPlan } from '../processes/program.ts';
import type { Floors } from './floors.ts';
import type { Foundation } from './foundation.ts';
import type { Helper, HelperPlan } from './helper.ts';
import type { Zone, ZonePlan } from './zone.ts';

export interface Figure {
  /** For `--only`. */
  name: string;
  /** In one line, for `--help`. */
  says: string;
  /** About how long it takes at full size. */
  seconds: number;
  /** It is held against the floors, which are measured anew just before it: a machine that others use too changes within minutes. */
  isOnFloors?: true;
  measure(context: BenchContext): Promise<readonly Result[]>;
}

export interface Result {
  /** The row's name, with its size: `CPU per heartbeat, 10,000 agents`. */
  what: string;
  value: number;
  /** Of the value and of the floor: `ms`, `µs`, `KB`, `/s`. */
  unit: string;
  /** What the same takes at least, measured in the same run; `of` says what that is: `2N + C + H`. */
  floor?: { of: string; value: number };
  limit?: Limit;
  /** What a reader needs to judge it: percentiles, samples, the load. */
  notes?: readonly string[];
}

/** On value / floor, or on the value itself. */
export type Limit = { on: 'ratio' | 'value' } & ({ atMost: number } | { atLeast: number });

export interface BenchContext {
  /** Sizes for trying the figure out; its numbers mean nothing. */
  isQuick: boolean;
  /** How long a figure that shows endurance goes on. */
  minutes: number;
  /** How often each peer takes its turn beside ours. */
  rounds: number;
  /** Postgres and the bus, shared by all figures of a run. */
  foundation: Foundation;
  floors: Floors;
  /** For what a figure wants to keep on disk; removed at the end. */
  directory: string;
  /** Where profiles go, if they are wanted; they are taken after the measuring. */
  profiles: string | undefined;
  /** Aborted when the user wants to stop. */
  signal: AbortSignal;
  /** Progress, for people. */
  say(text: string): void;
  /** Instances on a database of their own, ready; stopped at the end of the run at the latest. */
  startZone(plan?: ZonePlan): Promise<Zone>;
  /** A program of the benchmark's own in a process of its own; stopped likewise. */
  startHelper(plan: HelperPlan): Promise<Helper>;
  /** Any program, in a process of its own; killed likewise. */
  startProgram(plan: Pick<ProgramPlan, 'name' | 'command'>): Program;
}

export function ratioOf({ value, floor }: Result): number | undefined {
  return floor === undefined ? undefined : value / floor.value;
}

/** Undefined where there is no limit. */
export function isMet(result: Result): boolean | undefined {
  const { limit, value } = result;
  if (limit === undefined) return undefined;
  const measured = limit.on === 'value' ? value : (ratioOf(result) ?? Number.NaN);
  return 'atMost' in limit ? measured <= limit.atMost : measured >= limit.atLeast;
}
