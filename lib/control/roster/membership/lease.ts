/**
 * Leases are counters (docs/design.md section 5). Each live run raises its beat. An observer that
 * sees the same beat throughout `leaseMs`, over its own healthy ticks and successful reads,
 * declares the lease lapsed. No clocks are compared. Pure data: `countHealthyTick`, `readFailed`
 * and `readBeats` are the events; `readBeats` returns the leases that have lapsed.
 */
export interface BeatReading {
  run: string;
  beat: number;
}

export interface Watched {
  beat: number;
  /**
   * Healthy milliseconds since the beat was first seen at this value, with no failed read in
   * between.
   */
  standingMs: number;
}

export class LeaseObserver {
  readonly #leaseMs: number;
  readonly #watched = new Map<string, Watched>();

  constructor(leaseMs: number) {
    this.#leaseMs = leaseMs;
  }

  countHealthyTick(tickMs: number): void {
    for (const watched of this.#watched.values()) watched.standingMs += tickMs;
  }

  /** A read failed: what was seen before it proves nothing. */
  readFailed(): void {
    for (const watched of this.#watched.values()) watched.standingMs = 0;
  }

  /**
   * A read of all live runs succeeded. Returns those whose lease has lapsed, to be declared dead by
   * compare-and-set on (run, beat).
   */
  readBeats(readings: readonly BeatReading[]): BeatReading[] {
    const seen = new Set(readings.map(({ run }) => run));
    for (const run of this.#watched.keys()) if (!seen.has(run)) this.#watched.delete(run);
    return readings.filter((reading) => this.#observe(reading));
  }

  /**
   * How long this observer has seen the beat of `run` stand still; undefined when it is not
   * watched.
   */
  ageMs(run: string): number | undefined {
    return this.#watched.get(run)?.standingMs;
  }

  #observe({ run, beat }: BeatReading): boolean {
    const watched = this.#watched.get(run);
    if (watched === undefined || watched.beat !== beat) {
      this.#watched.set(run, { beat, standingMs: 0 });
      return false;
    }
    return watched.standingMs >= this.#leaseMs;
  }
}
