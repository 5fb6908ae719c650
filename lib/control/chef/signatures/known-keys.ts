/**
 * The public keys that have fitted signatures at this instance, by caller. Such a key is not
 * limited by the failures of others at its address. Bounded: each owner keeps the newest, and the
 * callers that were authenticated longest ago are forgotten.
 */
import { BoundedMap } from '../../../platform/limiting/bounded-map.ts';

const MAX_KNOWN_CALLERS = 5_000;
/** Each is tried, so this bounds the cost of a guess beyond the limit. */
const MAX_KEYS_PER_CALLER = 2;

export class KnownKeys {
  readonly #keys = new BoundedMap<string, readonly string[]>(MAX_KNOWN_CALLERS);

  /** Keys as PEM, the one that fitted last first. */
  of(caller: string): readonly string[] {
    return this.#keys.get(caller) ?? [];
  }

  add(caller: string, pem: string): void {
    this.#keys.set(caller, [pem, ...this.#without(caller, pem)].slice(0, MAX_KEYS_PER_CALLER));
  }

  delete(caller: string, pem: string): void {
    const others = this.#without(caller, pem);
    if (others.length === 0) this.#keys.delete(caller);
    else this.#keys.set(caller, others);
  }

  #without(caller: string, pem: string): readonly string[] {
    return this.of(caller).filter((one) => one !== pem);
  }
}
