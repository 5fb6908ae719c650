/**
 * Where the dials of a fleet wait for their turn. When an instance dies, thousands of agents of one process dial at once;
 * on machines of their own they would not keep each other from their heartbeats. So each turn of the event loop makes
 * only as many connections as take a few milliseconds.
 */
import type { Clock } from '../ports/clock.ts';

const TURN_MS = 4;

export class DialQueue {
  readonly #clock: Clock;
  readonly #waiting = new Set<() => void>();
  #isTurning = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Calls `dial`, which does not throw, soon; unless it is told to leave before. */
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
