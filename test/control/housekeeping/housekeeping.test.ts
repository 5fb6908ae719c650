import t from 'tap';
import { Housekeeping } from '../../../lib/control/housekeeping/housekeeping.ts';
import type { Chore } from '../../../lib/control/subsystem.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { migrationsOf } from '../../support/migrations-of.ts';
import { freshDatabase, type Teardown } from '../../support/postgres.ts';
import { until } from '../../support/until.ts';

const migrations = migrationsOf('moray', 'housekeeping');
const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
const open = (t: Teardown) => freshDatabase(t, { migrations });

function newHousekeeping(database: Queryable, chores: Chore[]) {
  const clock = new ManualClock();
  return { clock, housekeeping: new Housekeeping({ database, clock, log: silentLogger, chores }) };
}

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
  const instances = [database, another()].map((one) => newHousekeeping(one, chores).housekeeping);
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

t.test("a chore runs again although the database's clock stood in the future when it began", async (t) => {
  const { database } = await open(t);
  const late = chore('a', 0);
  const { housekeeping } = newHousekeeping(database, [late]);
  await housekeeping.runDue();
  await database.query(`update cnapi_chores set begun_at = begun_at + interval '1 second'`);
  await housekeeping.runDue();
  t.equal(late.batches, 1, 'a clock that was corrected a little');
  await database.query(`update cnapi_chores set begun_at = begun_at + interval '1 year'`);
  await housekeeping.runDue();
  await housekeeping.runDue();
  t.equal(late.batches, 2, 'once');
});

t.test('a chore that fails does not prevent others', async (t) => {
  const { database } = await open(t);
  const failing = { name: 'a', batch: () => Promise.reject(new Error('no')) };
  const next = chore('b', 1);
  await newHousekeeping(database, [failing, next]).housekeeping.runDue();
  t.equal(next.batches, 2);
});

t.test('chores run at their times of the clock', async (t) => {
  const { database } = await open(t);
  const hourly = chore('a', 0);
  const { clock, housekeeping } = newHousekeeping(database, [hourly]);
  const runAt = async (minute: number) => {
    const pauseMs = (minute * MINUTE_MS - clock.wallTime()) % HOUR_MS;
    await clock.advance((pauseMs + HOUR_MS) % HOUR_MS);
  };
  housekeeping.start();
  t.teardown(() => housekeeping.stop());
  await runAt(22);
  t.equal(hourly.batches, 0, 'not before its minute');
  for (const runs of [1, 2]) {
    await runAt(23);
    await until(() => hourly.batches === runs, `run ${runs}`);
    await database.query(`update cnapi_chores set begun_at = begun_at - interval '1 hour'`);
    await runAt(22);
    t.equal(hourly.batches, runs, 'once in its minute');
  }
  await housekeeping.stop();
  await clock.advance(2 * HOUR_MS);
  t.equal(hourly.batches, 2, 'nothing runs after a stop');
});

t.test('a stop ends the current chore and leaves the next to other instances', async (t) => {
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
  const { clock, housekeeping } = newHousekeeping(database, [endless, next]);
  housekeeping.start();
  await clock.advance(HOUR_MS);
  await begun.promise;
  await housekeeping.stop();
  t.equal(next.batches, 0);
  const { rows } = await database.query<{ name: string }>('select name from cnapi_chores');
  t.same(rows, [{ name: 'a' }]);
});
