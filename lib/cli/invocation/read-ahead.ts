/**
 * The results of `work` for each item, in order. While one is used, up to `most` of the next ones
 * are under way. The first failure ends it.
 */
export async function* readAhead<Item, Result>(
  items: Iterable<Item>,
  most: number,
  work: (item: Item) => Promise<Result>,
): AsyncGenerator<Result, void> {
  const running: Promise<Result>[] = [];
  for (const item of items) {
    const started = work(item);
    // Whoever awaits it gets the error; after another failure nobody does.
    started.catch(() => undefined);
    running.push(started);
    if (running.length === most) yield running.shift() as Promise<Result>;
  }
  for (const started of running) yield started;
}
