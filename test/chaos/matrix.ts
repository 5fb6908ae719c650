/**
 * The fault matrix: for each kind of fault and each workload, the number of requests, answers and
 * checks meanwhile. Pure.
 */

import type { CheckResult } from './findings.ts';
import { type Entry, WORKLOADS, type Workload } from './history.ts';

export interface Cell {
  asked: number;
  unanswered: number;
  held: number;
  void: number;
  violated: number;
}

export interface MatrixRow {
  fault: string;
  times: number;
  cells: Record<Workload, Cell>;
}

const QUIET = 'none yet';

/** A request or a check belongs to the faults that began last before it. */
export function matrixOf(
  history: readonly Entry[],
  results: readonly CheckResult[],
  kinds: readonly string[],
): MatrixRow[] {
  const faults = history.filter((entry) => entry.kind === 'fault').sort((a, b) => a.from - b.from);
  const rows = new Map([QUIET, ...kinds].map((fault) => [fault, emptyRow(fault)]));
  for (const { name } of faults) rowOf(rows, name).times += 1;
  const at = (time: number) => {
    const latest = faults.findLast(({ from }) => from <= time);
    const together = latest === undefined ? [] : faults.filter((each) => each.from <= time && each.to >= latest.from);
    return together.length === 0 ? [QUIET] : together.map(({ name }) => name);
  };
  for (const entry of history) {
    if (entry.kind !== 'op') continue;
    for (const name of at(entry.askedAt)) {
      const cell = rowOf(rows, name).cells[entry.workload];
      cell.asked += 1;
      if (entry.status === 0) cell.unanswered += 1;
    }
  }
  for (const { at: time, workload, outcome } of results)
    for (const name of at(time)) rowOf(rows, name).cells[workload][outcome] += 1;
  return [...rows.values()];
}

function rowOf(rows: Map<string, MatrixRow>, fault: string): MatrixRow {
  const row = rows.get(fault) ?? emptyRow(fault);
  rows.set(fault, row);
  return row;
}

function emptyRow(fault: string): MatrixRow {
  const cells = WORKLOADS.map((workload) => [workload, { asked: 0, unanswered: 0, held: 0, void: 0, violated: 0 }]);
  return { fault, times: 0, cells: Object.fromEntries(cells) as MatrixRow['cells'] };
}

/**
 * A table in Markdown. A cell has requests (unanswered), checks that held (void) and, if there are
 * any, violations.
 */
export function tableOf(rows: readonly MatrixRow[]): string {
  const head = ['fault', 'times', ...WORKLOADS];
  const lines = rows.map(({ fault, times, cells }) => [
    fault,
    String(times),
    ...WORKLOADS.map((each) => textOf(cells[each])),
  ]);
  return [head, head.map(() => '---'), ...lines].map((cells) => `| ${cells.join(' | ')} |`).join('\n');
}

function textOf({ asked, unanswered, held, void: nothing, violated }: Cell): string {
  const text = `${asked} (${unanswered}) · ${held} (${nothing})`;
  return violated === 0 ? text : `${text} · **${violated} violated**`;
}
