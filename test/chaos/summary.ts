/** What a run says about each rule: one line with its counts, and whether it failed. Pure. */
import { ruleNames } from './checker.ts';
import type { CheckResult } from './findings.ts';

interface Summary {
  rule: string;
  hasFailed: boolean;
  line: string;
}

type Sum = Record<CheckResult['outcome'], number>;

/**
 * `isWhole`: every kind of fault occurred. Then each rule must have been checked; otherwise the
 * faults that a rule needs may not have occurred. A rule that was only checked while the machine
 * was too busy says so, and does not fail the run.
 */
export function summariesOf(results: readonly CheckResult[], isWhole: boolean): Summary[] {
  return [...sumByRule(results)].map(([rule, sum]) => {
    const isChecked = sum.held + sum.violated + sum.void > 0;
    const hasFailed = sum.violated > 0 || (isWhole && !isChecked);
    return {
      rule,
      hasFailed,
      line: `${hasFailed ? 'not ok' : 'ok'} ${rule}: ${isChecked ? countsOf(sum) : UNCHECKED}`,
    };
  });
}

const UNCHECKED = 'not checked, because nothing happened that it applies to';

function countsOf(sum: Sum): string {
  const counts = `${sum.held} held, ${sum.void} void, ${sum.violated} violated`;
  return sum.held + sum.violated > 0 ? counts : `${counts} (proved nothing)`;
}

function sumByRule(results: readonly CheckResult[]): Map<string, Sum> {
  const sums = new Map<string, Sum>(ruleNames.map((rule) => [rule, { held: 0, void: 0, violated: 0 }]));
  for (const { rule, outcome } of results) {
    const sum = sums.get(rule) ?? { held: 0, void: 0, violated: 0 };
    sum[outcome] += 1;
    sums.set(rule, sum);
  }
  return sums;
}
