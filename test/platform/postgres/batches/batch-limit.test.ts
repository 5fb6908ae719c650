import t from 'tap';
import { BatchLimit } from '../../../../lib/platform/postgres/batches/batch-limit.ts';

const DEADLINE_MS = 4_000;
const many = Array.from({ length: 1_000 }, () => 10);
const create = () => new BatchLimit<number>({ maxBatch: 100, maxBatchSize: 500, sizeOf: (item) => item });

t.test('a batch is limited by its number of items and by their sizes, and one item always fits', async (t) => {
  const limit = create();
  const rows: [name: string, sizes: number[], count: number][] = [
    ['none', [], 0],
    ['small ones', many.map(() => 1), 100],
    ['large ones', many, 50],
    ['one that is too large', [900, 10], 1],
    ['a small one before one that is too large', [10, 900], 1],
  ];
  for (const [name, sizes, count] of rows) t.equal(limit.count(sizes), count, name);
});

t.test('a batch without an answer halves the limit, measured by that batch', async (t) => {
  const limit = create();
  limit.unanswered(many.slice(0, 40), DEADLINE_MS);
  t.equal(limit.count(many), 20);
  t.equal(limit.count(many.map(() => 1)), 40);
  limit.unanswered(many.slice(0, 50), DEADLINE_MS);
  t.equal(limit.count(many), 20, 'a larger one that began before says no more');
  for (let times = 0; times < 20; times += 1) limit.unanswered([10], DEADLINE_MS);
  t.equal(limit.count(many), 1);
});

t.test('the limit grows to what passes in most of the time, whatever the speed, and no further', async (t) => {
  for (const msPerByte of [1, 10, 50, 200, 390]) {
    const limit = create();
    let failures = 0;
    for (let batches = 0; batches < 60; batches += 1) {
      const batch = many.slice(0, limit.count(many));
      const tookMs = msPerByte * 10 * batch.length;
      if (tookMs <= DEADLINE_MS) {
        limit.answered(batch, tookMs);
      } else {
        failures += 1;
        limit.unanswered(batch, DEADLINE_MS);
      }
    }
    const bytes = 10 * limit.count(many);
    t.ok(bytes * msPerByte <= DEADLINE_MS, `${bytes} bytes of ${msPerByte} ms pass`);
    t.ok(bytes === 10 || bytes === 500 || bytes * msPerByte >= DEADLINE_MS / 4, `${bytes} bytes of ${msPerByte} ms`);
    t.ok(failures <= 6, `${failures} failures until then`);
  }
});

t.test('a small batch that is answered at once does not raise the limit much', async (t) => {
  const limit = create();
  limit.unanswered(many.slice(0, 50), DEADLINE_MS);
  limit.answered([1], 100);
  t.equal(limit.count(many), 25);
});

t.test('a clock that stands still leaves the limit as it is', async (t) => {
  const limit = create();
  limit.unanswered(many.slice(0, 40), 0);
  limit.answered(many.slice(0, 20), 0);
  t.equal(limit.count(many), 20);
});
