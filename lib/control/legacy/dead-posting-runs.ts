/**
 * Decides which dead runs' posts may be ended. A run that was declared dead may notice that and
 * move its posts to a new run, so it has a grace period. Each instance counts the grace period on
 * its own clock, over polls that the database has answered (law 4). It does not use the recorded
 * time of death: somebody may set the database's clock. Pure; driven by `legacy-dispatch.ts`.
 */

/** A run with posts that is not live. */
export interface DeadPostingRun {
  run: string;
  /** Whether the run was declared dead, so that its process may continue under a new run. */
  mayResumeUnderNewRun: boolean;
}

export class DeadPostingRuns {
  readonly #graceMs: number;
  readonly #maxGapMs: number;
  #since = new Map<string, number>();
  #seenAt = Number.NEGATIVE_INFINITY;

  /**
   * If two polls are more than `maxGapMs` apart, this process was unhealthy or late, and counting
   * starts again.
   */
  constructor({ graceMs, maxGapMs }: { graceMs: number; maxGapMs: number }) {
    this.#graceMs = graceMs;
    this.#maxGapMs = maxGapMs;
  }

  /**
   * Takes all dead runs with posts. Returns the runs whose posts no process will take over any
   * more.
   */
  seen(runs: readonly DeadPostingRun[], now: number): string[] {
    if (now - this.#seenAt > this.#maxGapMs) this.forget();
    this.#seenAt = now;
    this.#since = new Map(runs.map(({ run }) => [run, this.#since.get(run) ?? now]));
    return runs
      .filter(
        ({ run, mayResumeUnderNewRun }) =>
          !mayResumeUnderNewRun || now - (this.#since.get(run) ?? now) >= this.#graceMs,
      )
      .map(({ run }) => run);
  }

  /** A poll was not answered: perhaps no run could take over posts meanwhile. */
  forget(): void {
    this.#since.clear();
  }
}
