import t from 'tap';
import { type Chore, Housekeeping, housekeepingMigrations } from '../../lib/control/housekeeping.ts';
import { silentLogger } from '../../lib/platform/log.ts';
import { morayMigrations } from '../../lib/platform/moray/moray-schema.ts';
import { freshDatabase, type Teardown } from '../support/postgres.ts';

const migrations = [...morayMigrations, ...housekeepingMigrations];
const open = (t: Teardown) => freshDatabase(t, { migrations });

/** A chore that has `rows` to delete, two per batch. */
function chore(name: string, rows: number): Chore & { batches: number } {
  return {
    name,
    batches: 0,
    async batch() {
      this.batches += 1;
      const count = Math.min(rows, 2);
      rows -= count;
      return count;
    },
  };
}

t.test('a chore runs in batches until nothing is left, on one instance at a time', async (t) => {
  const { database, open: another } = await open(t);
  const chores = [chore('a', 5), chore('b', 0)];
  const instances = [database, another()].map((one) => new Housekeeping({ database: one, log: silentLogger, chores }));
  await Promise.all(instances.map((one) => one.runDue()));
  t.same(
    chores.map(({ batches }) => batches),
    [4, 1],
  );
  await database.query(`update cnapi_chores set begun_at = begun_at - interval '31 minutes' where name = 'b'`);
  for (const one of instances) await one.runDue();
  t.same(
    chores.map(({ batches }) => batches),
    [4, 2],
    'it runs again at its next time, which has come for one of them',
  );
});

t.test('a chore that fails does not prevent others', async (t) => {
  const { database } = await open(t);
  const failing = { name: 'a', batch: () => Promise.reject(new Error('no')) };
  const next = chore('b', 1);
  await new Housekeeping({ database, log: silentLogger, chores: [failing, next] }).runDue();
  t.equal(next.batches, 2);
});

t.test('chores run at their times; a stop ends the current one and leaves the next to other instances', async (t) => {
  const { database } = await open(t);
  const begun = Promise.withResolvers<void>();
  const endless = {
    name: 'a',
    async batch() {
      begun.resolve();
      await new Promise((resolve) => setTimeout(resolve, 10));
      return 1;
    },
  };
  const next = chore('b', 1);
  const housekeeping = new Housekeeping({
    database,
    log: silentLogger,
    chores: [endless, next],
    schedule: '* * * * * *',
  });
  housekeeping.start();
  await begun.promise;
  await housekeeping.stop();
  t.equal(next.batches, 0);
  const { rows } = await database.query<{ name: string }>('select name from cnapi_chores');
  t.same(rows, [{ name: 'a' }]);
});
