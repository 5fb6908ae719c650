import t from 'tap';
import { silentLogger } from '../../../lib/platform/log.ts';
import { morayMigrations } from '../../../lib/platform/moray/moray-schema.ts';
import type { Database } from '../../../lib/platform/postgres/database.ts';
import { type Migration, migrate } from '../../../lib/platform/postgres/migrations.ts';
import { freshPglite } from '../../support/pglite.ts';
import { freshDatabase } from '../../support/postgres.ts';

const log = silentLogger;
const step = (number: number, sql: string, name = `step ${number}`): Migration => ({ number, name, sql });
const numbersIn = async (database: Database) => {
  const { rows } = await database.query<{ number: number }>(
    'select number from cnapi_migrations order by applied_at, number',
  );
  return rows.map((row) => row.number);
};

t.test('several instances that start at once apply each step once', async (t) => {
  const { open } = await freshDatabase(t);
  const slow = step(10, 'create table a (n int); insert into a values (1); select pg_sleep(0.3)');
  const after = step(11, 'insert into a values (2)');
  // Waiting for another instance's step must not be cut short by the lock and statement timeouts of
  // ordinary work.
  const instances = [1, 2, 3, 4].map(() => open({ statementTimeoutMs: 100, maxConnections: 1 }));
  await Promise.all(instances.map((database) => migrate(database, [after, slow, ...morayMigrations], { log })));
  const database = open();
  t.same((await database.query('select n from a order by n')).rows, [{ n: 1 }, { n: 2 }]);
  t.same(await numbersIn(database), [1, 2, 10, 11]);
});

t.test('a step does not wait for a table that a dump has locked, and no statement waits behind it', async (t) => {
  const { database, open } = await freshDatabase(t);
  await migrate(database, [step(10, 'create table a (n int)')], { log });
  const more = [step(10, 'create table a (n int)'), step(11, 'alter table a add column m int')];
  const dump = open({ maxConnections: 1 });
  const [isReading, mayEnd] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const reading = dump.transaction(async (connection) => {
    await connection.query('lock table a, cnapi_migrations in access share mode');
    isReading.resolve();
    await mayEnd.promise;
  });
  await isReading.promise;
  await t.rejects(migrate(database, more, { log }), { code: 'DatabaseBusy' });
  await database.query('insert into a values (1)');
  t.same(await numbersIn(database), [10]);
  mayEnd.resolve();
  await reading;
  await migrate(database, more, { log });
  t.same(await numbersIn(database), [10, 11]);
});

t.test('a failing step is rolled back, earlier ones stay, and it can be applied later', async (t) => {
  const { database } = await freshDatabase(t);
  const first = step(10, 'create table a (n int)');
  const bad = step(11, 'create table b (n int); insert into a values (1 / 0)');
  await t.rejects(migrate(database, [first, bad], { log }), {
    code: 'MigrationError',
    message: /11 'step 11' failed.*division/,
  });
  t.same(await numbersIn(database), [10]);
  await migrate(database, [first, step(11, 'create table b (n int)')], { log });
  t.same(await numbersIn(database), [10, 11]);
});

t.test('a database newer than the code is left unchanged', async (t) => {
  const { database } = await freshDatabase(t);
  const [first, second, other] = [step(10, 'select 1'), step(11, 'select 1'), step(40, 'select 1')];
  await migrate(database, [first, second, other], { log });
  await migrate(database, [first], { log });
  t.same(await numbersIn(database), [10, 11, 40]);
});

t.test('each noun continues in its own range of ten, whatever others have applied', async (t) => {
  const { database } = await freshDatabase(t);
  await migrate(database, [step(10, 'select 1'), step(40, 'select 1')], { log });
  await migrate(database, [step(10, 'select 1'), step(11, 'select 1'), step(40, 'select 1')], { log });
  t.same(await numbersIn(database), [10, 40, 11]);
});

t.test('a history that contradicts the code is refused', async (t) => {
  const { database } = await freshDatabase(t);
  await migrate(database, [step(10, 'select 1'), step(12, 'select 1')], { log });
  const cases: [string, Migration[], RegExp][] = [
    ['renamed', [step(10, 'select 1', 'other')], /10 is 'other'.*given 'step 10'/],
    ['rewritten', [step(10, 'select 2')], /10 is 'step 10'.*given another text.*add a new number/],
    ['inserted below', [step(10, ''), step(11, ''), step(12, '')], /11 'step 11' was never applied, but 12 was/],
    ['lost', [step(12, '')], /has migration 10 'step 10', which this version lacks although it has 12/],
    ['twice', [step(20, ''), step(20, '', 'other')], /both have number 20/],
    ['an invalid number', [step(0.5, '')], /not a number above 0/],
  ];
  for (const [name, migrations, message] of cases) {
    await t.rejects(migrate(database, migrations, { log }), { code: 'MigrationError', message }, name);
  }
  t.same(await numbersIn(database), [10, 12]);
});

t.test('a step may be reformatted, and a recorded step without a digest is accepted', async (t) => {
  const { database } = await freshDatabase(t);
  await migrate(database, [step(10, 'select 1'), step(11, 'select 1')], { log });
  await database.query('update cnapi_migrations set digest = null where number = 11');
  await migrate(database, [step(10, '\n  select  1\n'), step(11, 'select 2')], { log });
  t.same(await numbersIn(database), [10, 11]);
});

t.test('the same steps run in process, and a simulation can replace the clock', async (t) => {
  const database = await freshPglite(t, { migrations: morayMigrations });
  await migrate(database, morayMigrations, { log });
  await database.query(`
    create or replace function cnapi_now() returns timestamptz language sql stable
    as $$ select '2001-02-03T04:05:06Z'::timestamptz $$`);
  t.same((await database.query('select cnapi_now() as now')).rows, [{ now: new Date('2001-02-03T04:05:06Z') }]);
});
