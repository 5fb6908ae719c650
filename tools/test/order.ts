/**
 * The order in which test files start. The longest come first, so that none of them runs alone at
 * the end. `npm test` names the slowest files at its end; a new one among them belongs in this list.
 */
import path from 'node:path';

export const LONGEST = [
  'test/docs/adding-a-noun.test.ts',
  'test/**/defects.test.ts',
  'test/fuzz/fuzz.test.ts',
  'test/interleavings/{answers,catalogue,held-row,mix,pairs}.test.ts',
  'test/{failover,upgrade}/*.test.ts',
  'test/cli/commands.test.ts',
  'test/explorer/roster.test.ts',
  'test/faults/*.test.ts',
  'test/sim/*.test.ts',
  'test/tools/start/{npm-start,scale,instances}.test.ts',
  'test/{cli/hardship,cli/faults,cli/access/access,openapi/openapi,sdc-clients/sdc-clients}.test.ts',
  'test/platform/postgres/{pool,hosts}.test.ts',
  'test/control/waitlist/{stress,waitlist,races}.test.ts',
  'test/control/http/limits/answer-memory.test.ts',
  'test/control/tasks/tasks.test.ts',
  'test/control/{legacy/posts,legacy/real-agent,link/link,push/push-jobs}.test.ts',
  'test/{support/postgres-server,tools/bench/bench}.test.ts',
] as const;

/** The files sorted by their place in LONGEST, then by name. */
export function longestFirst(files: readonly string[]): string[] {
  const place = (file: string) => {
    const found = LONGEST.findIndex((pattern) => path.matchesGlob(file, pattern));
    return found === -1 ? LONGEST.length : found;
  };
  return files.toSorted((one, other) => place(one) - place(other) || (one < other ? -1 : 1));
}
