import t from 'tap';
import { systemClock } from '../../../lib/platform/clock.ts';
import { DatabaseBusyError } from '../../../lib/platform/errors.ts';
import { limitConcurrency } from '../../../lib/platform/postgres/concurrency-limit.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';

t.test('a statement that gets no connection of its share in time fails as busy and takes no permit', async (t) => {
  const begun: string[] = [];
  const ends = new Map<string, () => void>();
  const database: Queryable = {
    query: async (text) => {
      begun.push(text);
      await new Promise<void>((resolve) => ends.set(text, resolve));
      return { rows: [], rowCount: 0 };
    },
  };
  const share = limitConcurrency(database, { connections: 1, withinMs: 20, clock: systemClock });
  const first = share.query('first');
  await t.rejects(share.query('second'), DatabaseBusyError);
  const third = share.query('third');
  ends.get('first')?.();
  await first;
  await Promise.resolve();
  t.same(begun, ['first', 'third']);
  ends.get('third')?.();
  await third;
});
