/**
 * Random numbers from a seed: the same seed gives the same walk. It does not make processes
 * deterministic.
 */
import { type Random, systemRandom } from '../../lib/platform/random.ts';

/** mulberry32 */
export function seededRandom(seed: number): Random {
  let state = seed >>> 0;
  return {
    uuid: () => systemRandom.uuid(),
    fraction() {
      state = (state + 0x6d2b79f5) >>> 0;
      let mixed = Math.imul(state ^ (state >>> 15), state | 1);
      mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
      return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
    },
  };
}

export function pick<Item>(items: readonly Item[], random: Random): Item {
  const item = items[Math.floor(random.fraction() * items.length)];
  if (item === undefined) throw new Error('nothing to pick from');
  return item;
}

export function between(low: number, high: number, random: Random): number {
  return low + Math.floor(random.fraction() * (high - low + 1));
}
