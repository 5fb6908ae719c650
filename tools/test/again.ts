/**
 * A test of real processes can meet a machine that stood still. So where it is asked for (`.ci/run`), the few files that failed run
 * once more, each by itself. One that passes then is called unsteady, with its first failure in full above: it does not stop
 * a change that has nothing to do with it, and is to be looked into all the same. What is wrong fails twice.
 */
import type { TapTotals } from './tap-report.ts';

/** With more than these the machine is not to blame. */
export const MOST_AGAIN = 2;

export interface TwiceTold {
  totals: TapTotals;
  /** Files that failed and then passed. */
  unsteady: readonly string[];
}

/** Runs what failed by `run`, if it is that few of a run that came to its end, and takes its word for what it said before. */
export async function runAgain(first: TapTotals, run: (file: string) => Promise<TapTotals>): Promise<TwiceTold> {
  const files = first.failedFiles;
  if (!first.isWhole || files.length === 0 || files.length > MOST_AGAIN) return { totals: first, unsteady: [] };
  const second: TapTotals[] = [];
  for (const file of files) second.push(await run(file));
  const failures = second.flatMap((each) => each.failures);
  const failed = second.reduce((sum, each) => sum + each.failed, 0);
  const failedFiles = files.filter((_, index) => second[index]?.failed !== 0);
  const totals = { ...first, failed, failures, failedFiles };
  return { totals, unsteady: files.filter((file) => !failedFiles.includes(file)) };
}
