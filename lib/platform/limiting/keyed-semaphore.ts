/** Semaphores by key: work for one key waits for work of the same key, and for no other. */
import { KeyedCounts } from './keyed-counts.ts';
import { Semaphore, type WaitLimit } from './semaphore.ts';

export class KeyedSemaphore {
  readonly #permits: number;
  readonly #semaphores = new Map<string, Semaphore>();
  /** Work that runs or waits; a key without any is forgotten. */
  readonly #users = new KeyedCounts();

  constructor(permits: number) {
    this.#permits = permits;
  }

  /** Keys for which work runs or waits. */
  get size(): number {
    return this.#semaphores.size;
  }

  has(key: string): boolean {
    return this.#semaphores.has(key);
  }

  /**
   * Runs `work`, or throws the error of `late` if there is no permit of the key within `withinMs`.
   */
  async runWithin<Result>(key: string, limit: WaitLimit, work: () => Promise<Result>): Promise<Result> {
    const semaphore = this.#semaphores.get(key) ?? new Semaphore(this.#permits);
    this.#semaphores.set(key, semaphore);
    this.#users.add(key);
    try {
      return await semaphore.runWithin(limit, work);
    } finally {
      if (this.#users.add(key, -1) === 0) this.#semaphores.delete(key);
    }
  }
}
