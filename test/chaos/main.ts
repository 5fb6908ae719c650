/**
 * `npm run chaos`. The last line is `N passed, N failed`: rules that held throughout, and rules
 * that did not.
 */
import { rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { check } from './checker.ts';
import { findDefects } from './defects.ts';
import { faultKinds } from './faults.ts';
import { matrixOf, tableOf } from './matrix.ts';
import { type ChaosOptions, parseOptions, USAGE, UsageError } from './options.ts';
import { type RunResult, readEvidence, run } from './run.ts';
import { storyOf } from './story.ts';
import { summariesOf } from './summary.ts';

// Every process of a run ends with this one, however that ends: tools/processes/guardian.ts and the
// keepers of the stores.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => process.exit(130));

try {
  const options = parseOptions(process.argv.slice(2));
  if (options === undefined) console.log(USAGE);
  else process.exit(await chaos(options));
} catch (error) {
  if (!(error instanceof UsageError)) throw error;
  console.error(`chaos: ${error.message} (npm run chaos -- --help lists the options)`);
  process.exit(2);
}

async function chaos(options: ChaosOptions): Promise<number> {
  if (options.defects) return (await findDefects(options.only, console.log)) === 0 ? 0 : 1;
  const { directory, evidence, kinds } =
    options.check === undefined ? await run({ options, say: console.log }) : recheck(options.check);
  const results = check(evidence);
  const rows = matrixOf(evidence.history, results, kinds);
  writeFileSync(path.join(directory, 'matrix.md'), `${tableOf(rows)}\n`);
  for (const line of storyOf(evidence.history, results)) console.log(line);
  const missing = rows.filter(({ times, fault }) => times === 0 && kinds.includes(fault)).map(({ fault }) => fault);
  if (missing.length > 0) console.log(`${missing.length} kinds of faults did not occur: ${missing.join('; ')}`);
  const isWhole = missing.length === 0 && options.only.length === 0 && options.plan === undefined;
  const summaries = summariesOf(results, isWhole);
  for (const { line } of summaries) console.log(line);
  const failed = summaries.filter(({ hasFailed }) => hasFailed).length;
  if (failed === 0 && options.out === undefined && options.check === undefined)
    rmSync(directory, { recursive: true, force: true });
  else console.log(`history, database and logs are in ${directory}`);
  console.log(`${summaries.length - failed} passed, ${failed} failed`);
  return failed === 0 ? 0 : 1;
}

function recheck(directory: string): RunResult {
  return { directory, evidence: readEvidence(directory), kinds: faultKinds.map(({ name }) => name) };
}
