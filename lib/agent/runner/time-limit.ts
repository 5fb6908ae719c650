/**
 * The time limit of a task, counted from its arrival; in later processes of the agent, from its
 * first start. It can be changed until it is cancelled.
 */
import type { Clock, Timer } from '../../platform/time/clock.ts';

interface TimeLimitDeps {
  clock: Clock;
  timeoutMs: number;
  /** The part of the limit that has passed already. */
  passedMs: number;
  onOver(timeoutMs: number): void;
}

export class TimeLimit {
  readonly #clock: Clock;
  readonly #onOver: (timeoutMs: number) => void;
  readonly #since: number;
  #timer: Timer | undefined;

  constructor({ clock, timeoutMs, passedMs, onOver }: TimeLimitDeps) {
    this.#clock = clock;
    this.#onOver = onOver;
    this.#since = clock.now() - passedMs;
    this.#timer = this.#timerOf(timeoutMs);
  }

  /** Ends the task immediately if the new limit has already passed. */
  change(timeoutMs: number): void {
    if (this.#timer === undefined) return;
    this.#timer.cancel();
    this.#timer = this.#timerOf(timeoutMs);
  }

  cancel(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #timerOf(timeoutMs: number): Timer {
    const leftMs = this.#since + timeoutMs - this.#clock.now();
    return this.#clock.after(Math.max(0, leftMs), () => this.#onOver(timeoutMs));
  }
}
