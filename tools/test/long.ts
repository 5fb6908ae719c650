/**
 * Tests that `npm test` leaves to `.ci/run`, so that it takes about ten minutes on two cores: most
 * simulation seeds, all pairs of statements, the proofs that the lab detects deliberate defects,
 * minutes of random load, half of the faults of whole zones, and tests that need a distribution's
 * Postgres, another version of cnapi or a changed copy of it.
 */
import { globSync } from 'node:fs';

export const LONG = [
  'test/**/defects.test.ts',
  'test/docs/adding-a-noun.test.ts',
  'test/failover/*.test.ts',
  'test/faults/{agent-frozen,instance-still,instances-in-turn,lost-together,legacy-agents}.test.ts',
  'test/faults/{one-uuid-twice,poster-killed,postgres-frozen,unhealthy-instance}.test.ts',
  'test/fuzz/fuzz.test.ts',
  'test/interleavings/{held-row,mix,pairs}.test.ts',
  'test/sim/seeds-[2-6].test.ts',
  'test/sim/seeds-arriving.test.ts',
  'test/sim/seeds-duties.test.ts',
  'test/sim/seeds-rare.test.ts',
  'test/upgrade/*.test.ts',
  'test/control/waitlist/stress.test.ts',
] as const;

export interface Selection {
  /** Arguments for tap. */
  args: string[];
  /** Files left out. */
  left: readonly string[];
}

/** Selects the named files if any; all files with `--all`, or where nothing may be skipped. */
export function select(given: readonly string[], { root, isWhole }: { root: string; isWhole: boolean }): Selection {
  const args = given.filter((argument) => argument !== '--all');
  if (isWhole || args.length > 0 || args.length < given.length) return { args, left: [] };
  return { args: LONG.map((pattern) => `--exclude=${pattern}`), left: globSync([...LONG], { cwd: root }).sort() };
}
