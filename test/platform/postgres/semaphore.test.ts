import t from 'tap';
import { systemClock } from '../../../lib/platform/clock.ts';
import { DatabaseBusyError } from '../../../lib/platform/errors.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';
import { Semaphore, shareOf } from '../../../lib/platform/postgres/semaphore.ts';

/** Work that ends when the test says so. */
function controlled() {
  const begun: string[] = [];
  const ends = new Map<string, (error?: Error) => void>();
  const work = (name: string) => () =>
    new Promise<string>((resolve, reject) => {
      begun.push(name);
      ends.set(name, (error) => (error === undefined ? resolve(name) : reject(error)));
    });
  return { begun, work, end: (name: string, error?: Error) => ends.get(name)?.(error) };
}

t.test('a limited number run at once, the others in order of arrival, also after a failure', async (t) => {
  const { begun, work, end } = controlled();
  const semaphore = new Semaphore(2);
  const all = ['a', 'b', 'c', 'd'].map((name) => semaphore.run(work(name)));
  await Promise.resolve();
  t.same(begun, ['a', 'b']);
  end('b', new Error('failed'));
  await t.rejects(all[1] as Promise<string>, { message: 'failed' });
  t.same(begun, ['a', 'b', 'c']);
  for (const name of ['a', 'c']) end(name);
  await Promise.all([all[0], all[2]]);
  end('d');
  t.equal(await all[3], 'd');
  const last = semaphore.run(work('e'));
  end('e');
  t.equal(await last, 'e', 'no permit was lost');
});

t.test('a statement that gets no connection of its share in time fails as busy and takes no permit', async (t) => {
  const { begun, work, end } = controlled();
  const database: Queryable = {
    query: async (text) => ({ rows: [await work(text)()] as never[], rowCount: 1 }),
  };
  const share = shareOf(database, { connections: 1, withinMs: 20, clock: systemClock });
  const first = share.query('first');
  await t.rejects(share.query('second'), DatabaseBusyError);
  const third = share.query('third');
  end('first');
  await first;
  await Promise.resolve();
  t.same(begun, ['first', 'third']);
  end('third');
  await third;
});
