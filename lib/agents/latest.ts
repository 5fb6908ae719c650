/**
 * Does one piece of work at a time for each key, and of those that come meanwhile only the last: for what supersedes itself,
 * such as what an agent says of its machine. Owned by the link server, one for each kind. Of a key at rest nothing is kept.
 */
export class Latest<Key> {
  /** What comes next, by the keys of which something is being done. */
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
