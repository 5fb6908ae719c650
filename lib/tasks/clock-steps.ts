/**
 * How far the database's clock was set ahead, as this process's own clock tells: by a step of it, or because another server
 * whose clock is ahead has taken over. What had begun before then seems that much older to the database than it is, and is
 * given the difference (law 4). Pure; read anew with each slow poll of the dispatcher.
 */
export interface ClockReading {
  /** The database's clock. */
  databaseMs: number;
  /** Of this process's clock: the question, and its answer. */
  askedAt: number;
  answeredAt: number;
}

/** More than a clock gains between two readings while it is only being corrected. */
const STEP_MS = 1_000;
/** Of more than so many the older ones count as one, which is as recent as the last of them. */
const MAX_STEPS = 100;

export class ClockSteps {
  readonly #keepMs: number;
  #last: ClockReading | undefined;
  #steps: { at: number; ms: number }[] = [];

  /** A step counts for `keepMs`: what had begun before it is over then. */
  constructor(keepMs: number) {
    this.#keepMs = keepMs;
  }

  /** Whether the clock was set ahead between the last reading and this one. */
  read(reading: ClockReading): boolean {
    const last = this.#last;
    this.#last = reading;
    if (last === undefined) return false;
    const gainedMs = reading.databaseMs - last.databaseMs;
    const surely = gainedMs - (reading.answeredAt - last.askedAt);
    if (surely <= STEP_MS) return false;
    this.#add({ at: reading.answeredAt, ms: Math.ceil(gainedMs - (reading.askedAt - last.answeredAt)) });
    return true;
  }

  /** How much older than it is something may seem that began while this process watched. */
  aheadMs(now: number): number {
    this.#steps = this.#steps.filter(({ at }) => now - at < this.#keepMs);
    return this.#steps.reduce((sum, { ms }) => sum + ms, 0);
  }

  #add(step: { at: number; ms: number }): void {
    this.#steps.push(step);
    if (this.#steps.length <= MAX_STEPS) return;
    const ms = this.#steps.reduce((sum, each) => sum + each.ms, 0);
    this.#steps = [{ at: step.at, ms }];
  }
}
