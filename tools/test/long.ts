/**
 * What `npm test` leaves to `.ci/run`, so that it is over in a quarter of an hour on two cores: the proofs that the lab can fail (its
 * deliberate defects), minutes of random load, and what needs a distribution's Postgres or an earlier version of ourselves.
 */
import { globSync } from 'node:fs';

export const LONG = [
  'test/**/defects.test.ts',
  'test/failover/*.test.ts',
  'test/fuzz/fuzz.test.ts',
  'test/interleavings/mix.test.ts',
  'test/upgrade/*.test.ts',
  'test/waitlist/stress.test.ts',
] as const;

export interface Selection {
  /** For tap. */
  args: string[];
  /** How many files are left out. */
  left: number;
}

/** With files named, just those; the whole with `--all`, and where nothing may be skipped. */
export function select(given: readonly string[], { root, isWhole }: { root: string; isWhole: boolean }): Selection {
  const args = given.filter((argument) => argument !== '--all');
  if (isWhole || args.length > 0 || args.length < given.length) return { args, left: 0 };
  return { args: LONG.map((pattern) => `--exclude=${pattern}`), left: globSync([...LONG], { cwd: root }).length };
}
