interface Work<Item, Result> {
  /** Items that are in progress at the same time. */
  maxAhead: number;
  work(item: Item): Promise<Result>;
  /** Whether an item failed because others were in progress, and may succeed alone. */
  isOverload(error: unknown): boolean;
}

/**
 * The results of `work` for each item, in order. While one is used, up to `most` of the next ones
 * are in progress. After an overload, the items that failed are repeated, and from then on one at
 * a time is in progress. Any other failure, or one of an item that was alone, ends it.
 */
export async function* readAhead<Item, Result>(
  items: Iterable<Item>,
  { maxAhead, work, isOverload }: Work<Item, Result>,
): AsyncGenerator<Result, void> {
  const running: { item: Item; started: Promise<Result>; isAlone: boolean }[] = [];
  let atOnce = maxAhead;
  const next = async (): Promise<Result> => {
    const { item, started, isAlone } = running.shift() as (typeof running)[number];
    try {
      return await started;
    } catch (error) {
      if (isAlone || !isOverload(error)) throw error;
      atOnce = 1;
      await Promise.allSettled(running.map(({ started }) => started));
      return work(item);
    }
  };
  for (const item of items) {
    const started = work(item);
    // `next` gets the error. After another failure nobody awaits this one, and that is not an
    // error.
    started.catch(() => undefined);
    running.push({ item, started, isAlone: atOnce === 1 });
    while (running.length >= atOnce) yield await next();
  }
  while (running.length > 0) yield await next();
}
