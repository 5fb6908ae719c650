/**
 * Runs a few pieces of work concurrently. The first failure is thrown by the next call, and ends
 * the rest.
 */
export class WriteQueue {
  readonly #size: number;
  readonly #running = new Set<Promise<void>>();
  #failure: { error: unknown } | undefined;

  constructor(size: number) {
    this.#size = size;
  }

  /** Resolves when the work has begun. */
  async add(work: () => Promise<void>): Promise<void> {
    while (this.#running.size >= this.#size) await Promise.race(this.#running);
    this.#throwFailure();
    const running = work().catch((error: unknown) => {
      this.#failure ??= { error };
    });
    const tracked = running.finally(() => this.#running.delete(tracked));
    this.#running.add(tracked);
  }

  /** Resolves when all work has ended. */
  async drain(): Promise<void> {
    await this.settle();
    this.#throwFailure();
  }

  /** Like `drain`, but never throws. */
  async settle(): Promise<void> {
    await Promise.all(this.#running);
  }

  #throwFailure(): void {
    if (this.#failure !== undefined) throw this.#failure.error;
  }
}
