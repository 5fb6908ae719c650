/** Randomness as a parameter, so that a seed can replay a run. */
import { randomBytes, randomUUID } from 'node:crypto';

export interface Random {
  /** A random (version 4) UUID in lower case. */
  uuid(): string;
  /** Uniform in [0, 1). */
  fraction(): number;
}

export const systemRandom: Random = {
  uuid: () => randomUUID(),
  fraction: () => randomBytes(4).readUInt32BE(0) / 2 ** 32,
};

/** Returns `items` in random order; does not change the input. */
export function shuffled<T>(items: readonly T[], random: Random): T[] {
  return items
    .map((item) => ({ item, rank: random.fraction() }))
    .sort((a, b) => a.rank - b.rank)
    .map(({ item }) => item);
}
