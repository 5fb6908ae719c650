/**
 * Does one piece of work at a time, and of those that come meanwhile only the last: for what supersedes itself, such as
 * what an agent says of its machine. Owned by the link server, one for each connection and kind.
 */
export class Latest {
  #next: (() => Promise<void>) | undefined;
  #isRunning = false;

  /** `work` must not reject. */
  run(work: () => Promise<void>): void {
    this.#next = work;
    if (!this.#isRunning) void this.#runAll();
  }

  async #runAll(): Promise<void> {
    this.#isRunning = true;
    while (this.#next !== undefined) {
      const work = this.#next;
      this.#next = undefined;
      await work();
    }
    this.#isRunning = false;
  }
}
