import t from 'tap';
import { DatabaseBusyError, DatabaseUnavailableError } from '../../../../lib/platform/errors.ts';
import { silentLogger } from '../../../../lib/platform/log.ts';
import { BatchOnce } from '../../../../lib/platform/postgres/batches/batch-once.ts';
import type { Queryable } from '../../../../lib/platform/postgres/database.ts';
import { type Clock, systemClock } from '../../../../lib/platform/time/clock.ts';
import { ManualClock } from '../../../support/manual-clock.ts';

const database: Queryable = { query: async () => ({ rows: [], rowCount: 0 }) };
const items = Array.from({ length: 10 }, (_, n) => n);

function create(work: (batch: number[]) => Promise<Iterable<number> | undefined>, clock: Clock = systemClock) {
  const what = 'a test';
  return new BatchOnce({ clock, log: silentLogger, database, what, keyOf: String, maxBatch: 4, work });
}

t.test('items that are locked, slow or refused on their own are left out, and all others are done', async (t) => {
  const done: number[] = [];
  const failures = new Map<number, Error>([
    [2, new DatabaseBusyError('locked')],
    [5, new Error('refused')],
  ]);
  const once = create(async (batch) => {
    for (const item of batch) {
      const failure = failures.get(item);
      if (failure !== undefined) throw failure;
    }
    done.push(...batch.filter((item) => item !== 9));
    return batch.filter((item) => item === 9);
  });
  const left = await once.do(items);
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
  const once = create(async () => {
    statements += 1;
    throw new DatabaseUnavailableError();
  });
  await t.rejects(once.do(items), DatabaseUnavailableError);
  t.equal(statements, 1);
});

t.test('a pass begins with batches of the size that passed the network in the pass before', async (t) => {
  const clock = new ManualClock();
  const statements: number[] = [];
  const once = create(async (batch) => {
    statements.push(batch.length);
    await clock.sleep(Math.min(1_500 * batch.length, 4_000));
    if (batch.length > 2) throw new DatabaseBusyError('unanswered');
    return undefined;
  }, clock);
  for (const expected of [
    [4, 2, 2, 2, 2, 2],
    [2, 2, 2, 2, 2],
  ]) {
    const pass = once.do(items);
    await clock.advance(0);
    await clock.advance(60_000);
    t.same(await pass, []);
    t.same(statements.splice(0), expected);
  }
});

t.test('without items there is no statement', async (t) => {
  const once = create(() => t.fail('a statement') as never);
  t.same(await once.do([]), []);
});
