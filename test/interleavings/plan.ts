/** The list of pairs, computed from what each call did alone in each world. */
import { type Footprint, type Interleaving, interleave, survey, type Violation } from './interleaving.ts';
import type { Lane } from './lane.ts';
import type { Call } from './statement.ts';
import { WORLD_NAMES, WORLDS, type WorldName } from './worlds.ts';

export type Footprints = ReadonlyMap<WorldName, ReadonlyMap<Call, Footprint>>;

/** Runs each call in each world, divided among the lanes. */
export async function surveyAll(
  lanes: readonly Lane[],
  calls: readonly Call[],
  names: readonly WorldName[] = WORLD_NAMES,
): Promise<Footprints> {
  const found = new Map<WorldName, Map<Call, Footprint>>(names.map((name) => [name, new Map()]));
  const work = names.flatMap((name) => calls.map((call) => ({ name, call })));
  await share(lanes, work, async (lane, { name, call }) => {
    const footprint = await survey(lane, name, call);
    if (footprint !== undefined) found.get(name)?.set(call, footprint);
  });
  return found;
}

/**
 * All interleavings of calls that can touch the same rows, one of them changing them, in both
 * orders.
 */
export function planPairs(footprints: Footprints): Interleaving[] {
  return [...footprints].flatMap(([world, calls]) =>
    [...calls].flatMap(([first, one]) =>
      [...calls]
        .filter(([, two]) => (one.hasEffect || two.hasEffect) && doMeet(WORLDS[world], one, two))
        .flatMap(([second]) => one.stops.map((point) => ({ world, point, first, second }))),
    ),
  );
}

/** Whether one call locks or writes a table of these that the other call reads, locks or writes. */
function doMeet(tables: readonly string[], one: Footprint, two: Footprint): boolean {
  const holds = ({ locks, writes }: Footprint, table: string) => locks.has(table) || writes.has(table);
  const touches = (footprint: Footprint, table: string) => holds(footprint, table) || footprint.reads.has(table);
  return tables.some(
    (table) => (holds(one, table) && touches(two, table)) || (holds(two, table) && touches(one, table)),
  );
}

export interface Result {
  violations: Violation[];
  /** First legs that were not seen to stop at their point. */
  notStopped: Interleaving[];
  /** Second legs that had to wait. */
  waited: number;
}

/** Runs them, divided among the lanes; ends early when `isEnough` returns true. */
export async function runPairs(
  lanes: readonly Lane[],
  pairs: readonly Interleaving[],
  isEnough: (violations: readonly Violation[]) => boolean = () => false,
): Promise<Result> {
  const result: Result = { violations: [], notStopped: [], waited: 0 };
  await share(lanes, mixed(pairs), async (lane, pair) => {
    if (isEnough(result.violations)) return;
    const { complaints, firstStood, secondStood } = await interleave(lane, pair);
    if (complaints.length > 0) result.violations.push({ ...pair, complaints });
    if (!firstStood) result.notStopped.push(pair);
    if (secondStood) result.waited += 1;
  });
  return result;
}

/** A fixed arbitrary order, so that pairs of one kind do not all come last. */
function mixed<Item>(items: readonly Item[]): Item[] {
  const STEP = 7919;
  return items
    .map((item, n) => ({ item, rank: (n * STEP) % items.length }))
    .sort((a, b) => a.rank - b.rank)
    .map(({ item }) => item);
}

export const sentence = ({ world, point, first, second, complaints }: Violation): string =>
  `${world}: "${first.name}" stopped at ${point}, then "${second.name}": ${complaints.join('; ')}`;

async function share<Item>(
  lanes: readonly Lane[],
  items: readonly Item[],
  work: (lane: Lane, item: Item) => Promise<void>,
): Promise<void> {
  let next = 0;
  await Promise.all(
    lanes.map(async (lane) => {
      for (let item = items[next++]; item !== undefined; item = items[next++]) await work(lane, item);
    }),
  );
}
