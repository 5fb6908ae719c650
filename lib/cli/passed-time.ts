/**
 * Time that has passed, a suspended machine's sleep included: there the monotonic clock stands still, and the wall clock has
 * jumped when the machine wakes. A jump backwards counts nothing, so that whoever waits for an end is never told too late;
 * one forwards that is no sleep (somebody sets the clock) may tell it too early. Used by ticket-keeper.ts.
 */
import type { Clock } from '../ports/clock.ts';

/** The two are not read in the same moment. */
const JUMP_MS = 500;

export class PassedTime {
  readonly #clock: Clock;
  #last: { now: number; wall: number };
  #asleepMs = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#last = { now: clock.now(), wall: clock.wallTime() };
  }

  /** Milliseconds, good for differences. */
  now(): number {
    const { now, wall } = { now: this.#clock.now(), wall: this.#clock.wallTime() };
    const jumpMs = wall - this.#last.wall - (now - this.#last.now);
    if (jumpMs > JUMP_MS) this.#asleepMs += jumpMs;
    this.#last = { now, wall };
    return now + this.#asleepMs;
  }
}
