/** Bounded parallelism: `limit` pieces of work run at once, the rest wait in order. */
export class Lane {
  readonly #limit: number;
  readonly #queue = new Set<() => Promise<void>>();
  #running = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** `work` must not reject. Work that leaves before its turn never runs. */
  enter(work: () => Promise<void>): { leave(): void } {
    this.#queue.add(work);
    this.#next();
    return { leave: () => void this.#queue.delete(work) };
  }

  get waiting(): number {
    return this.#queue.size;
  }

  #next(): void {
    if (this.#running >= this.#limit) return;
    const [work] = this.#queue;
    if (!work) return;
    this.#queue.delete(work);
    this.#running += 1;
    void work().finally(() => {
      this.#running -= 1;
      this.#next();
    });
  }
}
