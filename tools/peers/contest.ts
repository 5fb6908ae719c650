/**
 * Alternates ours and a peer: ours, the peer, ours, the peer, so that other load on the machine
 * affects both. A turn yields a number for each measure. A row of the report is the median of ours
 * compared with the median of the peer's; its ratio is from the same run.
 */
import type { Result } from '../bench/figure.ts';
import { median } from '../bench/statistics.ts';
import { number } from '../bench/table.ts';

/** One number for each measure. */
export type Turn = Readonly<Record<string, number>>;

export interface Side {
  name: string;
  /** Does the work once, for the duration of a turn. @throws when the work was not actually done */
  take(): Promise<Turn>;
}

/** A peer that cannot run because this machine lacks something. */
export interface Absent {
  name: string;
  reason: string;
}

export interface Measure {
  key: string;
  what: string;
  unit: string;
}

export interface Pair {
  own: Turn;
  peer: Turn;
}

/**
 * Returns the pairs of each peer, in the order they were taken. The peers of a round run one after
 * the other.
 */
export async function takePairs(
  own: Side,
  peers: readonly Side[],
  { rounds, say }: { rounds: number; say(text: string): void },
): Promise<Map<string, Pair[]>> {
  const pairs = new Map<string, Pair[]>(peers.map(({ name }) => [name, []]));
  for (let round = 1; round <= rounds; round++) {
    for (const peer of peers) {
      say(`round ${round} of ${rounds}: beside ${peer.name}`);
      pairs.get(peer.name)?.push({ own: await own.take(), peer: await peer.take() });
    }
  }
  return pairs;
}

/** One row for each measure and peer. */
export function compare(pairs: ReadonlyMap<string, readonly Pair[]>, measures: readonly Measure[]): Result[] {
  return measures.flatMap((measure) => Array.from(pairs, ([peer, taken]) => rowOf(measure, peer, taken)));
}

/** Adds notes to the last row that name the peers that could not be measured. */
export function withAbsent(results: readonly Result[], absent: readonly Absent[]): Result[] {
  const last = results.at(-1);
  if (last === undefined || absent.length === 0) return [...results];
  const notes = absent.map(({ name, reason }) => `not measured: ${name}: ${reason}`);
  return [...results.slice(0, -1), { ...last, notes: [...(last.notes ?? []), ...notes] }];
}

function rowOf({ key, what, unit }: Measure, peer: string, taken: readonly Pair[]): Result {
  const [own, theirs] = [valuesOf(taken, 'own', key), valuesOf(taken, 'peer', key)];
  const ratios = own.map((value, index) => value / (theirs[index] ?? Number.NaN));
  return {
    what,
    value: median(own),
    unit,
    floor: { of: peer, value: median(theirs) },
    notes: [`ours ${range(own)}, theirs ${range(theirs)}; ratio ${range(ratios)} over ${taken.length} pairs`],
  };
}

function valuesOf(taken: readonly Pair[], side: keyof Pair, key: string): number[] {
  return taken.map((pair) => {
    const value = pair[side][key];
    if (value === undefined) throw new Error(`a turn says nothing of ${key}`);
    return value;
  });
}

function range(values: readonly number[]): string {
  return `${number(Math.min(...values))} to ${number(Math.max(...values))}`;
}
