import t from 'tap';
import { systemClock } from '../../../lib/platform/clock.ts';
import { DatabaseBusyError } from '../../../lib/platform/errors.ts';
import { limitConcurrency } from '../../../lib/platform/postgres/concurrency-limit.ts';
import type { Queryable, StatementOptions } from '../../../lib/platform/postgres/database.ts';

/** A database whose statements end when the test says so. */
function heldDatabase() {
  const begun: string[] = [];
  const lockTimeouts: (number | undefined)[] = [];
  const ends = new Map<string, (error?: Error) => void>();
  const database: Queryable = {
    query: async (text: string, _values: unknown, options?: StatementOptions) => {
      begun.push(text);
      lockTimeouts.push(options?.lockTimeoutMs);
      await new Promise<void>((resolve, reject) => ends.set(text, (error) => (error ? reject(error) : resolve())));
      return { rows: [], rowCount: 0 };
    },
  };
  return { database, begun, lockTimeouts, end: (text: string, error?: Error) => ends.get(text)?.(error) };
}

/** Lets the promises that are settled continue. */
const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

t.test('a statement that gets no connection of its share in time fails as busy and takes no permit', async (t) => {
  const { database, begun, end } = heldDatabase();
  const share = limitConcurrency(database, { connections: 2, withinMs: 20, clock: systemClock });
  const first = share.query('first');
  await t.rejects(share.query('second'), DatabaseBusyError);
  const third = share.query('third');
  end('first');
  await first;
  await settle();
  t.same(begun, ['first', 'third']);
  end('third');
  await third;
});

t.test('a statement that waits for a lock makes way for others and is tried again', async (t) => {
  const { database, begun, lockTimeouts, end } = heldDatabase();
  const share = limitConcurrency(database, { connections: 2, withinMs: 60_000, clock: systemClock });
  const locked = share.query('locked');
  const alsoLocked = share.query('also locked');
  const other = share.query('other');
  end('locked', new DatabaseBusyError('locked'));
  await settle();
  end('also locked', new DatabaseBusyError('locked'));
  await settle();
  t.same(begun, ['locked', 'also locked', 'locked', 'other'], 'the second try runs beside the others');
  t.equal(lockTimeouts[0], 20);
  t.ok((lockTimeouts[2] ?? 0) > 50_000, 'the second try has the time that is left');
  end('other');
  await other;
  end('locked');
  await locked;
  await settle();
  t.equal(begun.at(-1), 'also locked');
  end('also locked');
  await alsoLocked;
});

t.test('another error is not tried again', async (t) => {
  const { database, begun, end } = heldDatabase();
  const share = limitConcurrency(database, { connections: 2, withinMs: 60_000, clock: systemClock });
  const slow = share.query('slow');
  end('slow', new DatabaseBusyError('slow'));
  await t.rejects(slow, new DatabaseBusyError('slow'));
  t.same(begun, ['slow']);
});
