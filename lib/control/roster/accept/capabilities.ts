/**
 * The capabilities of agents, as sets. Agents of one version announce the same words, so ten
 * thousand of them share one set. The number of kept sets is bounded, because a hostile agent could
 * invent any number.
 */
const MAX_SETS = 100;

export class CapabilitySets {
  readonly #sets = new Map<string, ReadonlySet<string>>();

  of(words: readonly string[]): ReadonlySet<string> {
    const key = JSON.stringify(words);
    const known = this.#sets.get(key);
    if (known !== undefined) return known;
    const set = new Set(words);
    if (this.#sets.size < MAX_SETS) this.#sets.set(key, set);
    return set;
  }
}
