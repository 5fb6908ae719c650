/**
 * Collects the ids of objects that changed lately, for a reader that asks now and then: only the
 * newest, each once. Costs no statement until it is asked.
 */
export class RecentIds {
  readonly #limit: number;
  #ids = new Set<string>();

  constructor(limit = 1_000) {
    this.#limit = limit;
  }

  add(id: string): void {
    this.#ids.add(id);
    if (this.#ids.size <= this.#limit) return;
    const [oldest] = this.#ids;
    if (oldest !== undefined) this.#ids.delete(oldest);
  }

  take(): string[] {
    const taken = [...this.#ids];
    this.#ids = new Set();
    return taken;
  }
}
