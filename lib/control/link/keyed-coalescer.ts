/**
 * Does one piece of work at a time for each key. Of the work that arrives meanwhile it keeps only
 * the last, because newer work supersedes older, as with an agent's reports about its machine.
 * Owned by the link server, one for each kind. An idle key uses no memory.
 */
export class KeyedCoalescer<Key> {
  /** The next piece of work, for each key whose work is running. */
  readonly #next = new Map<Key, (() => Promise<void>) | undefined>();

  /** `work` must not reject. */
  run(key: Key, work: () => Promise<void>): void {
    const isRunning = this.#next.has(key);
    this.#next.set(key, work);
    if (!isRunning) void this.#runAll(key);
  }

  async #runAll(key: Key): Promise<void> {
    for (let work = this.#next.get(key); work !== undefined; work = this.#next.get(key)) {
      this.#next.set(key, undefined);
      await work();
    }
    this.#next.delete(key);
  }
}
