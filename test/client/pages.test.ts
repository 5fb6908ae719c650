import t from 'tap';
import { allByOffset, fullPages, pages } from '../../lib/client/pages.ts';

const NUMBERS = Array.from({ length: 2_500 }, (_, n) => n);
type Asked = { after?: string; limit: number };

t.test('pages are read until one has no next, or as many items as wanted have come', async (t) => {
  const rows: [string, number | undefined, number, Asked[]][] = [
    ['all', undefined, 2_500, [{ limit: 1_000 }, { after: '700', limit: 1_000 }, { after: '1400', limit: 1_000 }]],
    ['fewer than a page', 3, 3, [{ limit: 3 }]],
    ['a short page and a part of the next', 800, 800, [{ limit: 800 }, { after: '700', limit: 100 }]],
    ['none', 0, 0, []],
  ];
  for (const [name, wanted, count, expected] of rows) {
    const asked: Asked[] = [];
    const read = async (request: Asked) => {
      asked.push(request);
      const from = Number(request.after ?? 0);
      // A page of large items is shorter than its limit.
      const items = NUMBERS.slice(from, from + Math.min(700, request.limit));
      const end = from + items.length;
      return { items, next: end < NUMBERS.length ? String(end) : undefined };
    };
    t.same(await Array.fromAsync(pages(read, wanted)), NUMBERS.slice(0, count), name);
    t.same(asked.slice(0, 3), expected, name);
  }
});

t.test('a list without `next` ends with the first page that is not full', async (t) => {
  for (const length of [0, 999, 1_000, 2_500]) {
    const all = NUMBERS.slice(0, length);
    const after = (text: string) => Number(text) + 1;
    const read = async (request: Asked) =>
      all.slice(request.after === undefined ? 0 : after(request.after)).slice(0, request.limit);
    t.same(await Array.fromAsync(fullPages(read, String)), all);
    t.same(await allByOffset(async ({ offset, limit }) => all.slice(offset, offset + limit)), all);
  }
});
