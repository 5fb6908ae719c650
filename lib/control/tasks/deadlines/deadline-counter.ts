/**
 * The unit of tasks' deadlines: ticks of one counter in the database, which no clock sets. While an
 * instance is healthy, it advances the counter once per poll, by the whole ticks that have passed
 * on its own clock since it read the counter. The database refuses that if another instance has
 * advanced the counter meanwhile. So the counter never runs ahead of real time, however many
 * instances there are and whatever happens to any clock. It stands still while no instance is
 * healthy or the database is unreachable (law 4). Pure; driven by sweeper.ts.
 *
 * Why it never runs ahead: an instance that read the value v at time t proposes only values up to v
 * + (now - t) ticks, and each proposal is applied only if the counter still has the value that the
 * instance knows.
 */
export const TICK_MS = 1_000;
/** A poll later than this is late: the process was stalled, or the database was slow. */
const MAX_POLL_PERIODS = 3;

/** Add `by` ticks if the counter is `seen`. */
export interface TickAdvance {
  seen: number | null;
  by: number;
}

export class DeadlineCounter {
  readonly #maxGapMs: number;
  /** A value of the counter, and a time on this process's clock at which it was already reached. */
  #seen: { tick: number; at: number } | undefined;
  #answeredAt = 0;

  /**
   * If more than `maxGapMs` passed between two answers, this process or the database was in
   * trouble: that time is not counted.
   */
  constructor(maxGapMs: number) {
    this.#maxGapMs = maxGapMs;
  }

  propose(now: number): TickAdvance {
    if (this.#seen === undefined || now - this.#answeredAt > this.#maxGapMs) return { seen: null, by: 0 };
    return { seen: this.#seen.tick, by: Math.floor((now - this.#seen.at) / TICK_MS) };
  }

  /** `tick`: the counter's value after the proposal, whether it was applied or not. */
  answered({ seen, by }: TickAdvance, tick: number, now: number): void {
    this.#answeredAt = now;
    // The rest of a tick counts with the next proposal.
    if (this.#seen !== undefined && seen !== null && tick === seen + by)
      this.#seen = { tick, at: this.#seen.at + by * TICK_MS };
    else this.#seen = { tick, at: now };
  }

  /** The counter's value is unknown: the time until it is read again is not counted. */
  forget(): void {
    this.#seen = undefined;
  }
}

/** The counter may lag this much, and then catch up in one step. */
export const tickLagMs = ({ slowPollMs }: { slowPollMs: number }): number => MAX_POLL_PERIODS * slowPollMs;

/** The number of ticks that cover at least this many milliseconds. */
export const toTicks = (ms: number): number => Math.ceil(ms / TICK_MS);
