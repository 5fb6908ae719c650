/**
 * Elapsed time that includes the sleep of a suspended machine. During a sleep the monotonic clock
 * stands still, and the wall clock has jumped forward when the machine wakes. A jump backwards is
 * ignored, so a deadline is never noticed too late. A forward jump without a sleep (somebody sets
 * the clock) may end a deadline too early. Used by held-ticket.ts.
 */
import type { Clock } from '../../platform/time/clock.ts';

/** Tolerance, because the two clocks are not read at the same moment. */
const JUMP_MS = 500;

export class ElapsedTime {
  readonly #clock: Clock;
  #last: { now: number; wall: number };
  #asleepMs = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#last = { now: clock.now(), wall: clock.wallTime() };
  }

  /** Milliseconds; only differences have a meaning. */
  now(): number {
    const { now, wall } = { now: this.#clock.now(), wall: this.#clock.wallTime() };
    const jumpMs = wall - this.#last.wall - (now - this.#last.now);
    if (jumpMs > JUMP_MS) this.#asleepMs += jumpMs;
    this.#last = { now, wall };
    return now + this.#asleepMs;
  }
}
