/**
 * The order in which test files start. The longest come first, so that none of them runs alone at
 * the end. `npm test` names the slowest files at its end; a new one among them belongs in this
 * list, or in LONG.
 */
import path from 'node:path';
import { LONG } from './long.ts';

export const LONGEST = [
  ...LONG,
  'test/cli/commands.test.ts',
  'test/sim/*.test.ts',
  'test/control/waitlist/{waitlist,races}.test.ts',
  'test/control/tasks/tasks.test.ts',
  'test/control/{legacy/posts,link/link,push/push-jobs}.test.ts',
  'test/cli/{terminal,push-jobs/job}.test.ts',
  'test/control/{http/listener/caller-connection,streams/caller-streams,link/arrivals}.test.ts',
  'test/tools/bench/bench.test.ts',
] as const;

/** The files sorted by their place in LONGEST, then by name. */
export function longestFirst(files: readonly string[]): string[] {
  const place = (file: string) => {
    const found = LONGEST.findIndex((pattern) => path.matchesGlob(file, pattern));
    return found === -1 ? LONGEST.length : found;
  };
  return files.toSorted((one, other) => place(one) - place(other) || (one < other ? -1 : 1));
}
