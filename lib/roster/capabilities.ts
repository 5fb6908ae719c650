/**
 * What agents can do, as sets. Ten thousand agents of one version say the same words, so they share one set; of the many
 * that a hostile one could think of none is kept.
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
