/**
 * A counting semaphore, and a share of a pool's connections made from it. A share is for work in
 * which many callers may wait for one locked row: without it they would hold every connection, and
 * nothing else would proceed (law 9). Used by the readers of events and by the waitlist.
 */

import type { Clock } from '../clock.ts';
import { DatabaseBusyError } from '../errors.ts';
import type { Queryable } from './database.ts';

export class Semaphore {
  #free: number;
  /** In order of arrival. */
  readonly #waiting = new Set<() => void>();

  constructor(permits: number) {
    this.#free = permits;
  }

  /** Runs `work` as soon as there is a permit. */
  async run<Result>(work: () => Promise<Result>): Promise<Result> {
    if (this.#free > 0) this.#free -= 1;
    else await new Promise<void>((resolve) => this.#waiting.add(resolve));
    return this.#hold(work);
  }

  /** Runs `work`, or throws the error of `late` if there is no permit within `withinMs`. */
  async runWithin<Result>(
    { clock, withinMs, late }: { clock: Clock; withinMs: number; late: () => Error },
    work: () => Promise<Result>,
  ): Promise<Result> {
    if (this.#free > 0) this.#free -= 1;
    else await this.#wait(clock, withinMs, late);
    return this.#hold(work);
  }

  #wait(clock: Clock, withinMs: number, late: () => Error): Promise<void> {
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

/**
 * The same database with at most `connections` statements at once. A statement that finds none free
 * within `withinMs` fails with a DatabaseBusyError.
 */
export function shareOf(
  database: Queryable,
  { connections, withinMs, clock }: { connections: number; withinMs: number; clock: Clock },
): Queryable {
  const semaphore = new Semaphore(connections);
  const limit = { clock, withinMs, late: () => new DatabaseBusyError('locked') };
  return {
    query: (text, values, options) => semaphore.runWithin(limit, () => database.query(text, values, options)),
  };
}
