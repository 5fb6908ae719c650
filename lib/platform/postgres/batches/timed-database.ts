/**
 * Measures the statements of one piece of work, without its waits for a connection or for other
 * work. Used by `batch-queue.ts`, which judges by it how slow the database is.
 */
import type { Clock } from '../../time/clock.ts';
import type { Queryable } from '../database.ts';

export class TimedDatabase implements Queryable {
  readonly #database: Queryable;
  readonly #clock: Clock;
  readonly #beganAt: number;
  #tookMs: number | undefined;

  constructor(database: Queryable, clock: Clock) {
    this.#database = database;
    this.#clock = clock;
    this.#beganAt = clock.now();
  }

  /** The sum over all statements that have ended; without any, the time since the beginning. */
  get tookMs(): number {
    return this.#tookMs ?? this.#clock.now() - this.#beganAt;
  }

  query: Queryable['query'] = async (text, values, options) => {
    let sentAt = this.#clock.now();
    const onSent = () => {
      sentAt = this.#clock.now();
    };
    try {
      return await this.#database.query(text, values, { ...options, onSent });
    } finally {
      this.#tookMs = (this.#tookMs ?? 0) + this.#clock.now() - sentAt;
    }
  };
}
