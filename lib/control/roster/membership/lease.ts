/**
 * Leases are counters (docs/design/roster.md). Each live run raises its beat. An observer that
 * sees the same beat throughout `leaseMs`, over its own healthy ticks and successful reads,
 * declares the lease lapsed, by compare-and-set on (run, beat). No clocks are compared.
 */
import { UnchangedRows } from '../unchanged-rows.ts';

export interface BeatReading {
  run: string;
  beat: number;
}

export type ObservedLeases = UnchangedRows<BeatReading>;

export function observeLeases(leaseMs: number): ObservedLeases {
  return new UnchangedRows(leaseMs, { keyOf: ({ run }) => run, versionOf: ({ beat }) => String(beat) });
}
