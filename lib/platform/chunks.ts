/**
 * Cuts a list into pieces of `size` items, in order; the last one may have fewer. Each piece is
 * made when it is asked for. An empty list has none. `size` is at least 1.
 */
export function* chunksOf<Item>(items: readonly Item[], size: number): Generator<Item[]> {
  for (let start = 0; start < items.length; start += size) yield items.slice(start, start + size);
}
