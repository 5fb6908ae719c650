/**
 * How far away the database is: the shortest answer to a beat in the last minutes. A beat is a
 * small statement on a connection of its own. So a database that is busy, a locked row or a lost
 * packet makes some of them slow, while distance makes all of them slow. Pure.
 */

const PERIOD_MS = 150_000;

export class RoundTrip {
  #periodBeganAt: number;
  #shortestMs = Number.POSITIVE_INFINITY;
  #shortestBeforeMs = Number.POSITIVE_INFINITY;

  constructor(now: number) {
    this.#periodBeganAt = now;
  }

  /** The shortest of this period and the one before; 0 while none is known. */
  get shortestMs(): number {
    const shortestMs = Math.min(this.#shortestMs, this.#shortestBeforeMs);
    return Number.isFinite(shortestMs) ? shortestMs : 0;
  }

  note(tookMs: number, now: number): void {
    if (now - this.#periodBeganAt >= PERIOD_MS) {
      this.#shortestBeforeMs = this.#shortestMs;
      this.#shortestMs = Number.POSITIVE_INFINITY;
      this.#periodBeganAt = now;
    }
    this.#shortestMs = Math.min(this.#shortestMs, tookMs);
  }
}
