import t from 'tap';
import { systemClock } from '../../../lib/platform/clock.ts';
import { DatabaseBusyError, DatabaseUnavailableError } from '../../../lib/platform/errors.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { doOnce } from '../../../lib/platform/postgres/batch-once.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';

const database: Queryable = { query: async () => ({ rows: [], rowCount: 0 }) };
const items = Array.from({ length: 10 }, (_, n) => n);

function once(work: (batch: number[]) => Promise<Iterable<number> | undefined>) {
  const keyOf = (item: number) => `${item}`;
  return doOnce(items, { clock: systemClock, log: silentLogger, database, what: 'a test', keyOf, maxBatch: 4, work });
}

t.test('items that are locked, slow or refused on their own are left out, and all others are done', async (t) => {
  const done: number[] = [];
  const failures = new Map<number, Error>([
    [2, new DatabaseBusyError('locked')],
    [5, new Error('refused')],
  ]);
  const left = await once(async (batch) => {
    for (const item of batch) {
      const failure = failures.get(item);
      if (failure !== undefined) throw failure;
    }
    done.push(...batch.filter((item) => item !== 9));
    return batch.filter((item) => item === 9);
  });
  t.same(
    left.toSorted((a, b) => a - b),
    [2, 5, 9],
  );
  t.same(
    done.toSorted((a, b) => a - b),
    [0, 1, 3, 4, 6, 7, 8],
  );
});

t.test('without the database the error is thrown after one statement', async (t) => {
  let statements = 0;
  const asked = once(async () => {
    statements += 1;
    throw new DatabaseUnavailableError();
  });
  await t.rejects(asked, DatabaseUnavailableError);
  t.equal(statements, 1);
});

t.test('an empty batch costs no statement', async (t) => {
  const asked = doOnce<number>([], {
    clock: systemClock,
    log: silentLogger,
    database,
    what: 'a test',
    keyOf: String,
    maxBatch: 4,
    work: () => t.fail('no statement') as never,
  });
  t.same(await asked, []);
});
