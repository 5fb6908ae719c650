/** Steps of a schema: order, guarantees, refusals. */
import t from 'tap';
import { silentLogger } from '../../../lib/platform/log.ts';
import { morayMigrations } from '../../../lib/platform/moray/moray-schema.ts';
import type { Database } from '../../../lib/platform/postgres/database.ts';
import { keyOf, type Migration, migrate } from '../../../lib/platform/postgres/migrations.ts';
import { giveFormerSchema } from '../../support/former-schema.ts';
import { freshPglite } from '../../support/pglite.ts';
import { freshDatabase } from '../../support/postgres.ts';

const log = silentLogger;
const stepOf = (subsystem: string, number: number, sql: string, name = `step ${number}`): Migration => {
  return { subsystem, number, name, sql };
};
const step = (number: number, sql: string, name?: string): Migration => stepOf('a', number, sql, name);
/** The steps in the order in which they were applied. */
const stepsIn = async (database: Database) => {
  const { rows } = await database.query<{ subsystem: string; number: number }>(
    'select subsystem, number from cnapi_migrations order by applied_at, subsystem, number',
  );
  return rows.map(keyOf);
};

t.test('several instances that start at once apply each step once', async (t) => {
  const { open } = await freshDatabase(t);
  const slow = step(1, 'create table a (n int); insert into a values (1); select pg_sleep(0.3)');
  const after = step(2, 'insert into a values (2)');
  // Waiting for another instance's step must not be cut short by the lock and statement timeouts of
  // ordinary work.
  const instances = [1, 2, 3, 4].map(() => open({ statementTimeoutMs: 100, maxConnections: 1 }));
  await Promise.all(instances.map((database) => migrate(database, [...morayMigrations, after, slow], { log })));
  const database = open();
  t.same((await database.query('select n from a order by n')).rows, [{ n: 1 }, { n: 2 }]);
  t.same(await stepsIn(database), ['moray/1', 'moray/2', 'moray/3', 'a/1', 'a/2']);
});

t.test('subsystems are applied in the order of the list, each in the order of its numbers', async (t) => {
  const { database } = await freshDatabase(t);
  const steps = [stepOf('z', 2, 'select 1'), stepOf('b', 10, 'select 1'), stepOf('z', 1, 'select 1')];
  await migrate(database, [...steps, stepOf('b', 9, 'select 1')], { log });
  t.same(await stepsIn(database), ['z/1', 'z/2', 'b/9', 'b/10']);
});

t.test('a step does not wait for a table that a dump has locked, and no statement waits behind it', async (t) => {
  const { database, open } = await freshDatabase(t);
  await migrate(database, [step(1, 'create table a (n int)')], { log });
  const more = [step(1, 'create table a (n int)'), step(2, 'alter table a add column m int')];
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
  t.same(await stepsIn(database), ['a/1']);
  mayEnd.resolve();
  await reading;
  await migrate(database, more, { log });
  t.same(await stepsIn(database), ['a/1', 'a/2']);
});

t.test('a failing step is rolled back, earlier ones stay, and it can be applied later', async (t) => {
  const { database } = await freshDatabase(t);
  const first = step(1, 'create table a (n int)');
  const bad = step(2, 'create table b (n int); insert into a values (1 / 0)');
  await t.rejects(migrate(database, [first, bad], { log }), {
    code: 'MigrationError',
    message: /a\/2 'step 2' failed.*division/,
  });
  t.same(await stepsIn(database), ['a/1']);
  await migrate(database, [first, step(2, 'create table b (n int)')], { log });
  t.same(await stepsIn(database), ['a/1', 'a/2']);
});

t.test('a database newer than the code is left unchanged', async (t) => {
  const { database } = await freshDatabase(t);
  const [first, second, other] = [step(1, 'select 1'), step(2, 'select 1'), stepOf('b', 1, 'select 1')];
  await migrate(database, [first, second, other], { log });
  await migrate(database, [first], { log });
  t.same(await stepsIn(database), ['a/1', 'a/2', 'b/1']);
});

t.test('each subsystem continues with its own numbers, whatever others have applied', async (t) => {
  const { database } = await freshDatabase(t);
  await migrate(database, [step(1, 'select 1'), stepOf('b', 7, 'select 1')], { log });
  await migrate(database, [step(1, 'select 1'), step(2, 'select 1'), stepOf('b', 7, 'select 1')], { log });
  t.same(await stepsIn(database), ['a/1', 'b/7', 'a/2']);
});

t.test('a history that contradicts the code is refused', async (t) => {
  const { database } = await freshDatabase(t);
  await migrate(database, [step(1, 'select 1'), step(3, 'select 1')], { log });
  const cases: [string, Migration[], RegExp][] = [
    ['renamed', [step(1, 'select 1', 'other')], /a\/1 is 'other'.*given 'step 1'/],
    ['rewritten', [step(1, 'select 2')], /a\/1 is 'step 1'.*given another text.*start with an empty database/],
    ['inserted below', [step(1, 'select 1'), step(2, ''), step(3, '')], /a\/2 'step 2' was never applied, but 3 was/],
    [
      'lost',
      [step(3, 'select 1')],
      /has migration a\/1 'step 1', which this version lacks although it has 3; .*start with an empty database/,
    ],
    ['twice', [step(20, ''), step(20, '', 'other')], /a\/20 'step 20' and 'other' have the same number/],
    ['an invalid number', [step(0.5, '')], /not a number above 0/],
  ];
  for (const [name, migrations, message] of cases) {
    await t.rejects(migrate(database, migrations, { log }), { code: 'MigrationError', message }, name);
  }
  t.same(await stepsIn(database), ['a/1', 'a/3']);
});

t.test('the white space and the comments of a step may change', async (t) => {
  const { database } = await freshDatabase(t);
  await migrate(database, [step(1, '-- Why.\nselect 1')], { log });
  await migrate(database, [step(1, '\n  select  1\n  -- Another reason.\n')], { log });
  await t.rejects(migrate(database, [step(1, "select '--', 1")], { log }), { code: 'MigrationError' });
  t.same(await stepsIn(database), ['a/1']);
});

t.test('a database from before the baseline is refused, and stays as it is', async (t) => {
  const { database } = await freshDatabase(t);
  await giveFormerSchema(database);
  await t.rejects(migrate(database, [step(1, 'create table a (n int)')], { log }), {
    code: 'FormerSchema',
    message: /development version.*`npm start -- --data FOLDER`.*create a new database and name it in databaseUrl/,
  });
  t.same((await database.query(`select to_regclass('a') as a`)).rows, [{ a: null }]);
  t.same((await database.query('select number, name from cnapi_migrations')).rows, [{ number: 1, name: 'clock' }]);
});

t.test('the same steps run in process, and a simulation can replace the clock', async (t) => {
  const database = await freshPglite(t, { migrations: morayMigrations });
  await migrate(database, morayMigrations, { log });
  await database.query(`
    create or replace function cnapi_now() returns timestamptz language sql stable
    as $$ select '2001-02-03T04:05:06Z'::timestamptz $$`);
  t.same((await database.query('select cnapi_now() as now')).rows, [{ now: new Date('2001-02-03T04:05:06Z') }]);
});
