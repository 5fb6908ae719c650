/**
 * A test of real processes may fail because the machine stood still. When requested (`.ci/run`),
 * the few files that failed run once more, each alone. A file that then passes is reported as
 * unsteady, with its first failure printed in full above. It does not block an unrelated change,
 * but must still be investigated. A real defect fails twice. A broken rule of chaos may be a rare
 * race, whose repetition would prove nothing; then nothing runs again.
 */
import { CHAOS } from './lanes.ts';
import type { TapTotals } from './tap-report.ts';

/** About one file in fifty. When more fail, the cause is the change and not the machine. */
export const MOST_AGAIN = 5;

export interface BothRuns {
  totals: TapTotals;
  /** Files that failed first and then passed. */
  unsteady: readonly string[];
}

/**
 * Runs the failed files once more with `run` and uses the second result, if the first run was
 * complete, at most MOST_AGAIN files failed, and chaos broke no rule.
 */
export async function runAgain(first: TapTotals, run: (file: string) => Promise<TapTotals>): Promise<BothRuns> {
  const files = first.failedFiles;
  const mayRunAgain = first.isWhole && files.length > 0 && files.length <= MOST_AGAIN && !files.includes(CHAOS);
  if (!mayRunAgain) return { totals: first, unsteady: [] };
  const second: TapTotals[] = [];
  for (const file of files) second.push(await run(file));
  const failures = second.flatMap((each) => each.failures);
  const failed = second.reduce((sum, each) => sum + each.failed, 0);
  const failedFiles = files.filter((_, index) => second[index]?.failed !== 0);
  const totals = { ...first, failed, failures, failedFiles };
  return { totals, unsteady: files.filter((file) => !failedFiles.includes(file)) };
}
