/**
 * `npm test`: type check, lint, import direction, and the tests on a real Postgres and a real
 * Redis, without the longest, which `.ci/run` adds. With arguments it runs only those test files.
 * The last line is `N passed, N failed`; the exit code is 0 only if nothing failed. The lines
 * before it name the slowest files, what was left out or skipped, how long the run took, and what
 * failed; the details are printed where each failure occurred.
 */
import path from 'node:path';
import { systemClock } from '../../lib/platform/time/clock.ts';
import { startTestPostgres } from '../../test/support/postgres-server.ts';
import { runAgain } from './again.ts';
import { type Outcome, runCheck, staticChecks } from './checks.ts';
import { select } from './long.ts';
import { durationOf, secondsOfChildren } from './processor-time.ts';
import { provideRedis } from './redis.ts';
import { runTap } from './tap.ts';

const root = path.resolve(import.meta.dirname, '../..');
const began = systemClock.now();
const isAgainAsked = process.env.CNAPI_TEST_AGAIN !== undefined;

const selection = select(process.argv.slice(2), { root, isWhole: process.env.CNAPI_TEST_NO_SKIP !== undefined });
const checked = selection.isNamed ? { passed: 0, failed: 0, failures: [] } : await runChecks();
const tested = await runTests();
const failed = checked.failed + tested.failed;
console.log(saidCost());
for (const failure of [...checked.failures, ...tested.failures]) console.log(`failed: ${failure}`);
console.log(`${checked.passed + tested.passed} passed, ${failed} failed`);
process.exit(failed === 0 ? 0 : 1);

/** Each check counts as one. */
async function runChecks(): Promise<Outcome> {
  const results = await Promise.all(staticChecks.map((check) => runCheck(root, check)));
  for (const { name, ok, output } of results) console.log(ok ? `ok ${name}` : `not ok ${name}\n${output}`);
  const failures = results.filter(({ ok }) => !ok).map(({ name, output }) => `${name}\n${lastLines(output)}`);
  return { passed: results.length - failures.length, failed: failures.length, failures };
}

async function runTests(): Promise<Outcome> {
  const redis = await provideRedis();
  console.log(redis.said);
  const given = process.env.CNAPI_TEST_DATABASE_URL;
  const postgres = given === undefined ? await startTestPostgres() : undefined;
  try {
    const env = { ...process.env, CNAPI_TEST_DATABASE_URL: given ?? postgres?.url };
    const run = (files: readonly string[]) => runTap({ root, files, env });
    const first = await run(selection.files);
    const { totals, unsteady } = isAgainAsked
      ? await runAgain(first, (file) => run([file]))
      : { totals: first, unsteady: [] };
    const { skipped, slowest, ...outcome } = totals;
    for (const file of unsteady) console.log(`unsteady: ${file} failed above, and passed when it ran by itself`);
    if (slowest.length > 0)
      console.log(`slowest files: ${slowest.map(({ file, ms }) => saidTime(file, ms)).join(', ')}`);
    const { left } = selection;
    if (left.length > 0)
      console.log(`left ${left.length} long test files to .ci/run, or npm test -- --all: ${left.join(' ')}`);
    for (const [reason, count] of skipped) console.log(`skipped ${count} tests: ${reason}`);
    return outcome;
  } finally {
    await postgres?.close();
  }
}

function saidTime(file: string, ms: number): string {
  return `${file} ${Math.round(ms / 1000)} s`;
}

function saidCost(): string {
  const seconds = secondsOfChildren();
  const processor = seconds === undefined ? '' : `, with ${Math.round(seconds)} s of processor time`;
  return `took ${durationOf(systemClock.now() - began)}${processor}`;
}

function lastLines(text: string): string {
  return text.trimEnd().split('\n').slice(-20).join('\n');
}
