/** Bounded parallelism: so many run at once, the rest waits in order. */
export class Lane {
  readonly #limit: number;
  readonly #queue: (() => Promise<void>)[] = [];
  #running = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** `work` never rejects. */
  enter(work: () => Promise<void>): void {
    this.#queue.push(work);
    this.#next();
  }

  #next(): void {
    if (this.#running >= this.#limit) return;
    const work = this.#queue.shift();
    if (!work) return;
    this.#running += 1;
    void work().finally(() => {
      this.#running -= 1;
      this.#next();
    });
  }
}
