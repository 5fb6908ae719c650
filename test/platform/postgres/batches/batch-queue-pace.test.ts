/** How long a batch takes in all once a statement was slow, and what its time depends on. */
import t from 'tap';
import { DatabaseBusyError } from '../../../../lib/platform/errors.ts';
import { silentLogger } from '../../../../lib/platform/log.ts';
import { BatchQueue } from '../../../../lib/platform/postgres/batches/batch-queue.ts';
import type { Queryable } from '../../../../lib/platform/postgres/database.ts';
import { ManualClock } from '../../../support/manual-clock.ts';

const LIMIT_MS = 10_000;
const ITEMS = 500;
const STEP_MS = 500;
const STUCK = 137;

interface Row {
  name: string;
  /** Duration of a statement with these items. The first statement is slow in any case. */
  costMs: (items: readonly number[]) => number;
  /** Items that never succeed. */
  stuck?: number;
  maxMs: number;
  maxStatements: number;
}

const rows: Row[] = [
  { name: 'each statement takes 2 s', costMs: () => 2_000, maxMs: 26_500, maxStatements: 9 },
  { name: 'each statement takes 3 s', costMs: () => 3_000, maxMs: 42_000, maxStatements: 12 },
  { name: 'each statement takes 5 s', costMs: () => 5_000, maxMs: 58_000, maxStatements: 12 },
  { name: 'an item takes 30 ms', costMs: (items) => items.length * 30, maxMs: 25_500, maxStatements: 9 },
  { name: 'an item takes 100 ms', costMs: (items) => items.length * 100, maxMs: 68_000, maxStatements: 12 },
  {
    name: 'one item is stuck',
    costMs: (items) => (items.includes(STUCK) ? 60_000 : 5),
    stuck: 1,
    maxMs: 2 * LIMIT_MS,
    maxStatements: 30,
  },
];

for (const { name, costMs, stuck = 0, maxMs, maxStatements } of rows) {
  t.test(`${ITEMS} items are done in ${maxMs / 1_000} s after a stall if ${name}`, async (t) => {
    const clock = new ManualClock();
    const began = clock.now();
    let statements = 0;
    const done = new Set<number>();
    const database: Queryable = {
      async query(_text, values = [], { statementTimeoutMs = LIMIT_MS } = {}) {
        const items = values as number[];
        statements += 1;
        const neededMs = statements === 1 ? LIMIT_MS + 1 : costMs(items);
        await clock.sleep(Math.min(neededMs, statementTimeoutMs));
        if (neededMs > statementTimeoutMs) throw new DatabaseBusyError('slow');
        for (const item of items) done.add(item);
        return { rows: [], rowCount: items.length };
      },
    };
    const queue = new BatchQueue<number>({
      clock,
      log: silentLogger,
      database,
      what: 'items of a test',
      keyOf: String,
      maxBatch: ITEMS,
      async work(items, connection) {
        await connection.query('', items);
        return undefined;
      },
    });
    queue.addAll(Array.from({ length: ITEMS }, (_, item) => item));
    while (done.size < ITEMS - stuck && clock.now() - began < 10 * maxMs) await clock.advance(STEP_MS);
    const tookMs = clock.now() - began;
    t.equal(done.size, ITEMS - stuck);
    t.ok(tookMs <= maxMs, `${tookMs} ms`);
    t.ok(statements <= maxStatements, `${statements} statements`);
    await Promise.all([queue.stop(), clock.advance(LIMIT_MS)]);
  });
}
