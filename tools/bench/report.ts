/** What a run comes out with: the table is made of it, and `--json` prints it. Pure. */
import { isMet, type Result, ratioOf } from './figure.ts';
import type { Floors } from './floors.ts';
import type { Machine } from './machine.ts';

export interface FigureReport {
  name: string;
  seconds: number;
  /** The machine's load average of a minute, before the figure began. */
  loadBefore: number;
  results: readonly Result[];
  /** Why it could not be measured. */
  error?: string;
}

export interface Report {
  machine: Machine;
  startedAt: string;
  isQuick: boolean;
  /** Its figures stand beside peers, not beside floors. */
  isPeers: boolean;
  floors: Floors;
  figures: readonly FigureReport[];
}

/** As data, with what follows from the numbers spelt out. */
export function toJson(report: Report): string {
  const figures = report.figures.map((figure) => ({
    ...figure,
    results: figure.results.map((result) => ({
      ...result,
      ratio: ratioOf(result) ?? null,
      met: isMet(result) ?? null,
    })),
  }));
  return JSON.stringify({ ...report, figures }, null, 2);
}
