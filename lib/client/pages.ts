/** Lists that the API answers in pages, read only as far as their reader asks. */

/** The most items of one page. */
const PAGE = 1000;

interface PageRequest {
  /** Absent for the first page. */
  after?: string;
  limit: number;
}

interface Page<Item> {
  items: readonly Item[];
  /** The `after` of the next page; undefined for the last page. */
  next?: string | undefined;
}

/**
 * Yields the items of all pages, at most `wanted`. A page with a `next` may be shorter than its
 * limit.
 */
export async function* pages<Item>(
  read: (request: PageRequest) => Promise<Page<Item>>,
  wanted = Number.POSITIVE_INFINITY,
): AsyncGenerator<Item> {
  let after: string | undefined;
  for (let left = wanted; left > 0; ) {
    const { items, next } = await read({ limit: Math.min(PAGE, left), ...(after !== undefined && { after }) });
    yield* items;
    if (next === undefined) return;
    after = next;
    left -= items.length;
  }
}

/**
 * Yields all items of a list that does not say what comes next: a page that is not full is the
 * last.
 */
export function fullPages<Item>(
  read: (request: PageRequest) => Promise<readonly Item[]>,
  idOf: (item: Item) => string,
): AsyncGenerator<Item> {
  return pages(async (request) => {
    const items = await read(request);
    const last = items.at(-1);
    return { items, next: last === undefined || items.length < request.limit ? undefined : idOf(last) };
  });
}

/** Returns all items of a list that is read by offset. */
export function allByOffset<Item>(
  read: (request: { offset: number; limit: number }) => Promise<readonly Item[]>,
): Promise<Item[]> {
  let offset = 0;
  const readNext = async ({ limit }: PageRequest) => {
    const items = await read({ offset, limit });
    offset += limit;
    return items;
  };
  return Array.fromAsync(fullPages(readNext, () => String(offset)));
}
