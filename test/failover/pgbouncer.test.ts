/**
 * pgbouncer in transaction mode: every statement has its timeouts and time zone wherever it runs,
 * server sessions keep no settings, and instances survive a restart of pgbouncer.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import t from 'tap';
import { lacks } from '../support/debian-programs.ts';
import { FILE_TIMEOUT_MS } from '../support/patience.ts';
import { startPooler } from '../support/pgbouncer.ts';
import { freshDatabase, openDatabase, startTestPostgres } from '../support/postgres.ts';
import { startStage, untilBusesAreHealthy } from './stage.ts';

t.setTimeout(FILE_TIMEOUT_MS);
const options = { skip: lacks('pgbouncer'), timeout: FILE_TIMEOUT_MS };
const settings = `select current_setting('statement_timeout') as statement, current_setting('lock_timeout') as lock,
  current_setting('idle_in_transaction_session_timeout') as idle, current_setting('timezone') as zone`;
const limited = { statement: '1500ms', lock: '700ms', idle: '3s', zone: 'UTC' };

t.test('settings apply to each statement and to nothing else', options, async (t) => {
  const { url, database: direct } = await freshDatabase(t);
  const pooler = await startPooler(t, url);
  const limits = { statementTimeoutMs: 1_500, lockTimeoutMs: 700 };
  const database = openDatabase(pooler.url, { pooler: 'transaction', maxConnections: 10, ...limits });
  t.teardown(() => database.stop());

  t.same((await database.query(settings)).rows, [limited], 'a plain statement');
  t.same((await database.query(`${settings}, $1::int8 as n`, [7])).rows, [{ ...limited, n: 7 }], 'with values');
  t.same((await database.query(settings, [], { name: 'settings' })).rows, [limited], 'a named statement');
  t.same((await database.transaction((one) => one.query(settings))).rows, [limited], 'a transaction');
  const longer = { statementTimeoutMs: 9_000 };
  const rows = await database.transaction((one) => one.query(settings), longer);
  t.same(rows.rows, [{ ...limited, statement: '9s', lock: '9s' }], 'a transaction with its own limit');
  // Uses all of the pooler's connections at once without any settings.
  const bare = new pg.Pool({ connectionString: pooler.url, max: 20 });
  t.teardown(() => bare.end());
  const seen = await Promise.all(Array.from({ length: 20 }, () => bare.query(`${settings}, pg_sleep(0.05)`)));
  t.same(
    [...new Set(seen.map(({ rows: [row] }) => row.statement))],
    ['0'],
    'no connection has the settings of another client',
  );

  await t.rejects(database.query('select pg_sleep($1)', [60]), {
    code: 'DatabaseBusy',
    cause: { code: '57014' },
  });
  await direct.query('create table held (n int); insert into held values (1)');
  await direct.transaction(async (holder) => {
    await holder.query('update held set n = 2');
    const wait = database.query('update held set n = $1', [3]);
    await t.rejects(wait, { code: 'DatabaseBusy', cause: { code: '55P03' } }, 'a lock wait ends');
  });
  t.same((await database.query('select n from held')).rows, [{ n: 2 }]);
  await t.rejects(database.query('select 1 / $1::int', [0]), { code: '22012' });
});

t.test('one statement is one transaction, on any connection', options, async (t) => {
  const { url } = await freshDatabase(t);
  const pooler = await startPooler(t, url);
  const database = openDatabase(pooler.url, { pooler: 'transaction', maxConnections: 20 });
  t.teardown(() => database.stop());
  await database.query('create table counted (n int); insert into counted values (0)');
  const add = () => database.query('update counted set n = n + $1::int', [1], { name: 'add' });
  await Promise.all(Array.from({ length: 200 }, add));
  t.same((await database.query('select n from counted')).rows, [{ n: 200 }]);
  const doubled = database.query('update counted set n = n / $1::int', [0], { name: 'divide' });
  await t.rejects(doubled, { code: '22012' });
  t.same((await database.query('select n from counted')).rows, [{ n: 200 }], 'a failed statement is rolled back');
});

t.test(
  'work continues while pgbouncer is restarted',
  { ...options, skip: lacks('pgbouncer', 'redis-server') },
  async (t) => {
    const postgres = await startTestPostgres();
    t.teardown(() => postgres.close());
    const pooler = await startPooler(t, postgres.url);
    const config = { databaseUrl: pooler.url, databasePooler: 'transaction', databaseDirectUrl: postgres.url };
    const { zone, finish } = await startStage(t, { databaseUrl: postgres.url, bus: 'postgres', config });
    await pooler.restart();
    await sleep(3_000);
    await pooler.program.kill();
    await sleep(3_000);
    await pooler.restart();
    await untilBusesAreHealthy(zone);
    await sleep(4_000);
    await finish();
  },
);
