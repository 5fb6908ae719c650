/**
 * A counting semaphore: a bounded number of pieces of work run concurrently, the rest wait in
 * order.
 */
import type { Clock } from '../time/clock.ts';

/** How long to wait for a permit, and the error after that. */
export interface WaitLimit {
  clock: Clock;
  withinMs: number;
  late: () => Error;
}

export class Semaphore {
  #free: number;
  /** Waiting calls in order of arrival. */
  readonly #waiting = new Set<() => void>();

  constructor(permits: number) {
    this.#free = permits;
  }

  get waiting(): number {
    return this.#waiting.size;
  }

  /** Runs `work` as soon as there is a permit: immediately, if one is free. */
  async run<Result>(work: () => Promise<Result>): Promise<Result> {
    if (this.#free > 0) this.#free -= 1;
    else await new Promise<void>((resolve) => this.#waiting.add(resolve));
    return this.#hold(work);
  }

  /** Runs `work`, or throws the error of `late` if there is no permit within `withinMs`. */
  async runWithin<Result>(limit: WaitLimit, work: () => Promise<Result>): Promise<Result> {
    if (this.#free > 0) this.#free -= 1;
    else await this.#wait(limit);
    return this.#hold(work);
  }

  /** Like `run`, for work that must not reject. Work that leaves before its turn never runs. */
  enter(work: () => Promise<void>): { leave(): void } {
    const turn = () => void this.#hold(work);
    if (this.#free > 0) {
      this.#free -= 1;
      turn();
    } else this.#waiting.add(turn);
    return { leave: () => void this.#waiting.delete(turn) };
  }

  #wait({ clock, withinMs, late }: WaitLimit): Promise<void> {
    return new Promise((resolve, reject) => {
      const permitted = () => {
        timer.cancel();
        resolve();
      };
      const timer = clock.after(withinMs, () => {
        this.#waiting.delete(permitted);
        reject(late());
      });
      this.#waiting.add(permitted);
    });
  }

  async #hold<Result>(work: () => Promise<Result>): Promise<Result> {
    try {
      return await work();
    } finally {
      const [next] = this.#waiting;
      if (next === undefined) this.#free += 1;
      else {
        this.#waiting.delete(next);
        next();
      }
    }
  }
}
