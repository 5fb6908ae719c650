/**
 * A queue for the dials of a fleet. When an instance dies, thousands of agents of one process dial
 * concurrently. On separate machines they would not delay each other's heartbeats. So each turn of
 * the event loop opens only as many connections as take a few milliseconds.
 */
import type { Clock } from '../../platform/time/clock.ts';

const TURN_MS = 4;

export class DialQueue {
  readonly #clock: Clock;
  readonly #waiting = new Set<() => void>();
  #isTurning = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Calls `dial` soon, unless `leave` is called first. `dial` must not throw. */
  enter(dial: () => void): { leave(): void } {
    this.#waiting.add(dial);
    if (!this.#isTurning) this.#nextTurn();
    return { leave: () => void this.#waiting.delete(dial) };
  }

  #nextTurn(): void {
    this.#isTurning = this.#waiting.size > 0;
    if (this.#isTurning) this.#clock.afterPoll(() => this.#turn());
  }

  #turn(): void {
    const until = this.#clock.now() + TURN_MS;
    for (const dial of this.#waiting) {
      this.#waiting.delete(dial);
      dial();
      if (this.#clock.now() >= until) break;
    }
    this.#nextTurn();
  }
}
