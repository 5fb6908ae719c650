/** Prints violations: each rule's first ones, with the events around them. Pure. */

import type { CheckResult } from './findings.ts';
import type { Entry } from './history.ts';

const SHOWN = 4;
const AROUND_MS = 4_000;
const LINES = 14;

export function storyOf(history: readonly Entry[], results: readonly CheckResult[]): string[] {
  const violations = results.filter(({ outcome }) => outcome === 'violated');
  const rules = [...new Set(violations.map(({ rule }) => rule))];
  return rules.flatMap((rule) => {
    const those = violations.filter((each) => each.rule === rule).sort((a, b) => a.at - b.at);
    const first = those
      .slice(0, SHOWN)
      .flatMap((each) => [`  at ${each.at.toFixed(0)}: ${each.text}`, ...around(history, each)]);
    const more = those.length > SHOWN ? [`  … and ${those.length - SHOWN} more`] : [];
    return [`violated: ${rule} (${those.length} times)`, ...first, ...more];
  });
}

/** The faults at that time, and requests about the objects that the violation names. */
function around(history: readonly Entry[], { at, text = '' }: CheckResult): string[] {
  const named = new Set(text.match(/[0-9a-f]{8}-[0-9a-f-]{27}/g) ?? []);
  const lines = history.flatMap((entry) => {
    if (entry.kind === 'fault' && entry.from <= at && at <= (entry.settledAt ?? entry.to) + AROUND_MS)
      return [
        {
          at: entry.from,
          line: `fault ${entry.name} ${at0(entry.instance)}until ${entry.to}, recovered at ${entry.settledAt}`,
        },
      ];
    if (
      entry.kind !== 'op' ||
      ![entry.task, entry.ticket, entry.server].some((id) => id !== undefined && named.has(id))
    )
      return [];
    const { kind: _kind, workload: _workload, ...shown } = entry;
    return [{ at: entry.askedAt, line: JSON.stringify(shown) }];
  });
  const sorted = lines.sort((a, b) => Math.abs(a.at - at) - Math.abs(b.at - at)).slice(0, LINES);
  return sorted.sort((a, b) => a.at - b.at).map(({ at: time, line }) => `    ${time.toFixed(0)}  ${line}`);
}

const at0 = (instance: number | undefined) => (instance === undefined ? '' : `at instance-${instance} `);
