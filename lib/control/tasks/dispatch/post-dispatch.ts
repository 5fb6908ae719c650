/**
 * The dispatch of queued tasks to servers without a session, as `Tasks` sees it. Implemented
 * by `lib/control/legacy/legacy-dispatch.ts`. Tasks for sessions of the agent link go through
 * `session-dispatch.ts`.
 */

import type { EndReport, ReportSubject } from '../reports/report.ts';
import type { ChangedTask } from '../store/change-result.ts';

/** Claims queued tasks for this instance and sends each once, by one request (a post). */
export interface PostDispatch {
  /** This server may have queued tasks. */
  hint(serverUuid: string): void;
  /** Does all work that a hint may have missed, now or soon. */
  poll(): Promise<void> | void;
  stop(): Promise<void>;
  /** Whether this instance could post more. */
  readonly hasRoom: boolean;
  /** Servers for which no claim was answered since the last call but one (`claim-progress.ts`). */
  endClaimPeriod(): string[];
  start(): void;
  /** Claims nothing more; posts in flight continue. */
  stopClaiming(): void;
  stats(): PostStats;
}

export interface PostStats {
  /** Tasks whose end this instance waits for. */
  postsInFlight: number;
  posted: number;
  /** Posts of dead runs, ended here. */
  postsLost: number;
}

/** Where the dispatch of posts reports what became of its tasks. */
export interface PostOutcomes {
  /** Records an end, and calls `acknowledge` once it is recorded. Called again until then. */
  record(subject: ReportSubject, end: EndReport, acknowledge: () => void): void;
  /** Wakes those who wait for these tasks, which changed. */
  onChanged(changed: readonly ChangedTask[]): void;
}
