/** The results of a run: the source of the table and of `--json`. Pure. */
import { isMet, type Result, ratioOf } from './figure.ts';
import type { Floors } from './floors.ts';
import type { Machine } from './machine.ts';

export interface FigureReport {
  name: string;
  seconds: number;
  /** The machine's load average of one minute before the figure began. */
  loadBefore: number;
  results: readonly Result[];
  /** Why the figure could not be measured. */
  error?: string;
}

export interface Report {
  machine: Machine;
  startedAt: string;
  isQuick: boolean;
  /** Whether the figures are compared with peers, not with floors. */
  isPeers: boolean;
  floors: Floors;
  figures: readonly FigureReport[];
}

/** Returns the report as JSON, with the derived values included. */
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
