import t from 'tap';
import {
  type BatchFailure,
  type BatchPart,
  BatchParts,
} from '../../../../lib/platform/postgres/batches/batch-parts.ts';

const LIMIT_MS = 3_000;
const all = (items: readonly unknown[]) => items.length;
const numbers = (length: number) => Array.from({ length }, (_, n) => n);

/** All parts, in their order. */
function* taken(parts: BatchParts<number>, count = all): Generator<BatchPart<number>> {
  for (let part = parts.take(count); part !== undefined; part = parts.take(count)) yield part;
}

interface Row {
  name: string;
  length: number;
  failure: BatchFailure['reason'];
  tookMs?: number;
  /** Time limit of the part that failed. */
  within?: number;
  lengths: number[];
  eachWithin: number | undefined;
}

const quarterMs = LIMIT_MS / 4;
const rows: Row[] = [
  { name: 'a locked batch', length: 16, failure: 'locked', lengths: Array(8).fill(2), eachWithin: undefined },
  { name: 'a refused batch', length: 16, failure: 'refused', lengths: Array(8).fill(2), eachWithin: undefined },
  { name: 'one without resources', length: 16, failure: 'resources', lengths: Array(8).fill(2), eachWithin: undefined },
  { name: 'a slow batch', length: 500, failure: 'slow', lengths: [...Array(7).fill(63), 59], eachWithin: quarterMs },
  { name: 'a slow pair', length: 2, failure: 'slow', lengths: [1, 1], eachWithin: quarterMs },
  { name: 'nine slow ones', length: 9, failure: 'slow', lengths: [2, 2, 2, 2, 1], eachWithin: quarterMs },
  { name: 'one that was cancelled', length: 2, failure: 'slow', tookMs: 5, lengths: [1, 1], eachWithin: 250 },
  { name: 'a slow part', length: 63, failure: 'slow', within: 700, lengths: [...Array(7).fill(8), 7], eachWithin: 700 },
  { name: 'a locked part', length: 8, failure: 'locked', within: 700, lengths: Array(8).fill(1), eachWithin: 700 },
  { name: 'an unanswered batch', length: 500, failure: 'unanswered', lengths: [500], eachWithin: undefined },
];

for (const { name, length, failure, tookMs = LIMIT_MS, within, lengths, eachWithin } of rows) {
  t.test(`${name} is tried again in ${lengths.length} parts`, async (t) => {
    const parts = new BatchParts<number>();
    const pace = within === undefined ? undefined : { statementTimeoutMs: within, slowInARow: 0 };
    parts.failed({ items: numbers(length), pace }, { reason: failure, tookMs });
    t.same(parts.items(), numbers(length));
    const found = [...taken(parts)];
    t.same(
      found.map(({ items }) => items.length),
      lengths,
    );
    t.same(
      found.flatMap(({ items }) => items),
      numbers(length),
      'in their order',
    );
    for (const { pace } of found) t.equal(pace?.statementTimeoutMs, eachWithin);
    t.same(parts.items(), []);
  });
}

t.test('parts of parts come behind all others, and an unanswered one before them', async (t) => {
  const parts = new BatchParts<number>();
  parts.failed({ items: numbers(16) }, { reason: 'locked', tookMs: 50 });
  const first = parts.take(all) as BatchPart<number>;
  parts.failed(first, { reason: 'locked', tookMs: 50 });
  const second = parts.take(all) as BatchPart<number>;
  parts.failed(second, { reason: 'unanswered', tookMs: 50 });
  const order = [...taken(parts)].map(({ items }) => items.join(' '));
  t.same(order, ['2 3', '4 5', '6 7', '8 9', '10 11', '12 13', '14 15', '0', '1']);
});

t.test('a part that is larger than a batch may be is taken in several, each within the same time', async (t) => {
  const parts = new BatchParts<number>();
  parts.failed({ items: numbers(40) }, { reason: 'slow', tookMs: LIMIT_MS });
  const found = [...taken(parts, (items) => Math.min(items.length, 3))];
  t.same(
    found.map(({ items }) => items.length),
    Array(8).fill([3, 2]).flat(),
  );
  for (const { pace } of found) t.equal(pace?.statementTimeoutMs, quarterMs);
  parts.failed({ items: numbers(40) }, { reason: 'slow', tookMs: LIMIT_MS });
  parts.clear();
  t.equal(parts.take(all), undefined);
});

t.test('wherever one slow item is, dividing a batch of any size takes at most as long as the batch did', async (t) => {
  for (const size of [2, 8, 9, 64, 200, 500, 2_000])
    for (const slow of [0, Math.floor(size / 2), size - 1]) {
      const parts = new BatchParts<number>();
      let lostMs = 0;
      parts.failed({ items: numbers(size) }, { reason: 'slow', tookMs: LIMIT_MS });
      for (const part of taken(parts)) {
        if (!part.items.includes(slow)) {
          parts.succeeded(part);
          continue;
        }
        const tookMs = part.pace?.statementTimeoutMs ?? LIMIT_MS;
        lostMs += tookMs;
        parts.failed(part, { reason: 'slow', tookMs });
      }
      t.ok(lostMs <= LIMIT_MS, `${size} items, number ${slow}: ${lostMs} ms`);
    }
});

t.test('after three slow parts in a row, all that is left of the batch is divided with the full time', async (t) => {
  const parts = new BatchParts<number>();
  parts.failed({ items: numbers(64) }, { reason: 'slow', tookMs: LIMIT_MS });
  const other = { items: [100, 101] };
  parts.failed(other, { reason: 'locked', tookMs: 50 });
  const fails = () => parts.failed(parts.take(all) as BatchPart<number>, { reason: 'slow', tookMs: quarterMs });
  fails();
  fails();
  parts.succeeded(parts.take(all) as BatchPart<number>);
  fails();
  fails();
  t.equal(parts.items().length, 58, 'one that succeeds between them ends the row');
  fails();
  const found = [...taken(parts)];
  t.same(
    found.map(({ items }) => items.length),
    [1, 1, ...Array(8).fill(7)],
  );
  for (const { pace } of found) t.equal(pace?.statementTimeoutMs, undefined);
});
