/** Counts what is held for a time, such as connections or bytes of memory, by its holder. */
export class KeyedCounts {
  readonly #counts = new Map<string, number>();

  /** Returns the new count; a holder whose count is 0 is forgotten. */
  add(key: string, by = 1): number {
    const count = this.of(key) + by;
    if (count > 0) this.#counts.set(key, count);
    else this.#counts.delete(key);
    return count;
  }

  of(key: string): number {
    return this.#counts.get(key) ?? 0;
  }
}
