import pg from 'pg';
import t, { type Test } from 'tap';
import { DatabaseUnavailableError } from '../../../lib/platform/errors.ts';
import { type Logger, silentLogger } from '../../../lib/platform/log.ts';
import { DatabaseHosts } from '../../../lib/platform/postgres/hosts.ts';
import type { PostgresDatabase, PostgresDeps } from '../../../lib/platform/postgres/pool.ts';
import { matchLists } from '../../support/match-lists.ts';
import { openDatabase, startTestPostgres, type TestPostgres } from '../../support/postgres.ts';
import { until } from '../../support/until.ts';

t.test('writes go to the host that accepts them, and after its failure to the next one', async (t) => {
  const [first, second] = await servers(t);
  await setReadOnly(first, true);
  const moves: object[] = [];
  const warn = (fields: object, message: string) => void (/primary changed/.test(message) && moves.push(fields));
  const log = { ...silentLogger, warn } as unknown as Logger;
  const hosts = new DatabaseHosts(urlOf([first, second]), log);
  const one = open(t, hosts, { maxConnections: 1, statementTimeoutMs: 300, queryTimeoutMs: 500 });
  const other = open(t, hosts, { statementTimeoutMs: 600_000 });

  t.equal(await portOf(one), second.port, 'a read-only host is skipped');
  t.equal(await portOf(other), second.port, 'it is not asked again');
  t.same(moves, []);

  await setReadOnly(first, false);
  const held = other.query('select pg_sleep(60)');
  const isCut = t.rejects(held, DatabaseUnavailableError, 'statements that wait for the former host fail at once');
  await until(() => other.stats.idle === 0, 'the statement to be in progress');
  second.freeze();
  await t.rejects(one.query('select 1'), DatabaseUnavailableError, 'a silent host is detected');
  t.equal(await portOf(one), first.port, 'the next host is asked');
  await isCut;
  matchLists(
    t,
    moves,
    [{ from: `127.0.0.1:${second.port}`, to: `127.0.0.1:${first.port}` }],
    'the change is logged once',
  );
  second.thaw();
});

t.test('a host that turns read-only is abandoned', async (t) => {
  const [first, second] = await servers(t);
  const database = open(t, urlOf([first, second]));
  t.equal(await portOf(database), first.port);
  await setReadOnly(first, true);
  const write = () => database.query('create table if not exists written (n int)');
  await t.rejects(write(), DatabaseUnavailableError);
  await write();
  t.equal(await portOf(database), second.port);
});

t.test('behind poolers a read-only host is abandoned when it refuses a write', async (t) => {
  const [first, second] = await servers(t);
  await setReadOnly(first, true);
  const database = open(t, urlOf([first, second]), { pooler: 'transaction' });
  t.equal(await portOf(database), first.port, 'a pooler cannot tell that its host is read-only');
  const write = () => database.query('create table if not exists written (n int)');
  await t.rejects(write(), DatabaseUnavailableError);
  await write();
  t.equal(await portOf(database), second.port);
});

t.test('a missing database is reported the same as with one host', async (t) => {
  const [first, second] = await servers(t);
  const database = open(t, urlOf([first, second]).replace('/postgres?', '/absent?'));
  await t.rejects(database.query('select 1'), { code: '3D000' });
});

t.test('with every host away the database is unavailable, and found again', async (t) => {
  const [first, second] = await servers(t);
  await Promise.all([first.stop(), second.stop()]);
  const database = open(t, urlOf([first, second]));
  await t.rejects(database.query('select 1'), DatabaseUnavailableError);
  await second.start();
  t.equal(await portOf(database), second.port);
});

async function servers(t: Test): Promise<[TestPostgres, TestPostgres]> {
  const started = await Promise.all([startTestPostgres(), startTestPostgres()]);
  for (const server of started) t.teardown(() => server.close());
  return started;
}

function open(t: Test, url: PostgresDeps['url'], options: Partial<PostgresDeps> = {}): PostgresDatabase {
  const database = openDatabase(url, options);
  t.teardown(() => database.stop());
  return database;
}

function urlOf(servers: readonly TestPostgres[]): string {
  const hosts = servers.map(({ port }) => `127.0.0.1:${port}`);
  return `postgres://cnapi@${hosts.join(',')}/postgres?target_session_attrs=read-write`;
}

async function portOf(database: PostgresDatabase): Promise<number | undefined> {
  return (await database.query<{ port: number }>(`select current_setting('port')::int as port`)).rows[0]?.port;
}

/** Resolves when new sessions see the setting. */
async function setReadOnly({ url }: TestPostgres, isReadOnly: boolean): Promise<void> {
  const value = isReadOnly ? 'on' : 'off';
  await ask(url, `alter system set default_transaction_read_only = ${value}`);
  await ask(url, 'select pg_reload_conf()');
  const isSo = async () =>
    (await ask(url, 'show default_transaction_read_only'))[0]?.default_transaction_read_only === value;
  await until(isSo, `read-only is ${value}`);
}

async function ask(url: string, text: string): Promise<Record<string, unknown>[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    return (await client.query(text)).rows;
  } finally {
    await client.end();
  }
}
