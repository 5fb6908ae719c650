import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import t, { type Test } from 'tap';
import { DatabaseUnavailableError } from '../../../lib/platform/errors.ts';
import { type Logger, silentLogger } from '../../../lib/platform/log.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';
import { waitForDatabase } from '../../../lib/platform/postgres/pool.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';
import { CuttableProxy } from '../../support/cuttable-proxy.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { matchLists } from '../../support/match-lists.ts';
import { freshDatabase, openDatabase, startTestPostgres } from '../../support/postgres.ts';
import { recordingLogger } from '../../support/recording-logger.ts';
import { until } from '../../support/until.ts';

const waiting = { clock: systemClock, log: silentLogger };

t.test('values are returned with their types', async (t) => {
  const { database } = await freshDatabase(t);
  const { rows } = await database.query(
    `select 9007199254740991::int8 as n, '{1,null}'::int8[] as ns, '2024-01-01T00:00:00Z'::timestamptz as at, 1.50::numeric as d,
            $1::jsonb as j, $2::boolean as b, now()::text ~ '[+]00$' as utc`,
    ['{"a":1}', true],
  );
  const at = new Date('2024-01-01T00:00:00Z');
  t.strictSame(rows, [{ n: 9007199254740991, ns: [1, null], at, d: '1.50', j: { a: 1 }, b: true, utc: true }]);
  await t.rejects(database.query('select 9007199254740993::int8'), RangeError);
  t.equal((await database.query('create temp table a (n int); insert into a values (1), (2)')).rowCount, 2);
});

t.test("a statement's own error is passed on with its SQLSTATE, and its connection stays", async (t) => {
  const { open } = await freshDatabase(t);
  const database = open({ maxConnections: 1 });
  const before = await backendOf(database);
  await t.rejects(database.query('select nonsense'), { code: '42703' });
  t.equal(await backendOf(database), before);
});

t.test('a named statement is prepared once, and again if the shape of its result has changed', async (t) => {
  const { database, open } = await freshDatabase(t);
  const single = open({ maxConnections: 1 });
  await database.query('create table a as select 1 as n');
  const read = async () => (await single.query('select * from a where n < $1', [9], { name: 'read a' })).rows;
  const prepared = 'select name, (generic_plans + custom_plans)::int as runs from pg_prepared_statements';
  t.same([await read(), await read()], [[{ n: 1 }], [{ n: 1 }]]);
  t.same((await single.query(prepared)).rows, [{ name: 'read a', runs: 2 }]);
  const before = await backendOf(single);
  await database.query('alter table a add column m int');
  await t.rejects(read(), { code: 'ServiceUnavailable', cause: { code: '0A000' } });
  t.same(await read(), [{ n: 1, m: null }]);
  t.not(await backendOf(single), before);
});

t.test('a transaction is applied as a whole or rolled back', async (t) => {
  const { database } = await freshDatabase(t);
  await database.query('create table a (n int)');
  t.equal(
    await database.transaction(async (connection) => (await connection.query('insert into a values (1)')).rowCount),
    1,
  );
  const failing = database.transaction(async (connection) => {
    await connection.query('insert into a values (2)');
    throw new Error('on second thoughts');
  });
  await t.rejects(failing, /second thoughts/);
  t.same((await database.query('select n from a')).rows, [{ n: 1 }]);
  t.equal(database.stats.waiting, 0);
});

t.test('a locked row, a slow statement and a database that is down are distinguished', async (t) => {
  const { database: holder, open } = await freshDatabase(t);
  const said: Record<string, unknown>[] = [];
  const database = open({ statementTimeoutMs: 200, log: recordingLogger(said) });
  await t.rejects(database.query('select pg_sleep(60)'), {
    code: 'DatabaseBusy',
    condition: 'slow',
    cause: { code: '57014' },
  });
  await database.transaction((connection) => connection.query('select pg_sleep(0.4)'), { statementTimeoutMs: 10_000 });
  await holder.query('create table held (n int); insert into held values (1)');
  await holder.transaction(async (connection) => {
    await connection.query('update held set n = 2');
    const wait = database.query('update held set n = 3');
    await t.rejects(wait, { code: 'DatabaseBusy', condition: 'locked', cause: { code: '55P03' } });
  });
  t.same(said, [], 'the database does not count as lost');
});

t.test('a statement may be given less time than the others, but not more', async (t) => {
  const { open } = await freshDatabase(t);
  for (const pooler of [undefined, 'transaction'] as const) {
    const patient = open({ pooler });
    const slow = { condition: 'slow', cause: { code: '57014' } };
    await t.rejects(patient.query('select pg_sleep(60)', [], { statementTimeoutMs: 100 }), slow);
    t.equal((await patient.query('select pg_sleep(0.2)', [])).rowCount, 1, 'the next one has the full time');
    const short = open({ pooler, statementTimeoutMs: 200 });
    await t.rejects(short.query('select pg_sleep(60)', [], { statementTimeoutMs: 60_000 }), slow);
  }
});

t.test('a pool waits for a database that stops and starts again', async (t) => {
  const server = await privateServer(t);
  const database = open(t, server.url);
  await waitForDatabase({ database, ...waiting });
  const running = t.rejects(database.query('select pg_sleep(60)'), DatabaseUnavailableError);
  const other = t.rejects(
    database.query('select pg_sleep(0.02) from generate_series(1, 10000)'),
    DatabaseUnavailableError,
  );
  await until(() => database.stats.total === 2 && database.stats.idle === 0);
  await server.stop();
  await Promise.all([running, other]);
  await t.rejects(database.query('select 1'), {
    code: 'ServiceUnavailable',
    statusCode: 503,
    cause: { code: 'ECONNREFUSED' },
  });
  await t.rejects(
    database.transaction(async () => undefined),
    DatabaseUnavailableError,
  );
  const back = waitForDatabase({ database, ...waiting });
  await server.start();
  await back;
  t.same((await database.query('select 1 as one')).rows, [{ one: 1 }]);
});

t.test('a pool waits for a crashed database, and the wait can be cancelled', async (t) => {
  const server = await privateServer(t);
  const database = open(t, server.url);
  await database.query('select 1');
  await server.crash();
  await t.rejects(database.query('select 1'), DatabaseUnavailableError);
  const given = new AbortController();
  const wait = waitForDatabase({ database, ...waiting, signal: given.signal });
  given.abort(new Error('stopping'));
  await t.rejects(wait, /stopping/);
  await server.start();
  await waitForDatabase({ database, ...waiting });
});

t.test('waiting for a database is logged at once and again each minute', async (t) => {
  const squatter = createServer();
  await new Promise<void>((resolve) => void squatter.listen(0, '127.0.0.1', resolve));
  const { port } = squatter.address() as { port: number };
  await new Promise((resolve) => squatter.close(resolve));
  const database = open(t, `postgres://127.0.0.1:${port}/nobody`);
  const clock = new ManualClock();
  const said: Record<string, unknown>[] = [];
  const given = new AbortController();
  const wait = waitForDatabase({ database, clock, log: recordingLogger(said), signal: given.signal });
  await until(async () => {
    await clock.advance(2_000);
    return said.length === 3;
  }, 'a third log line about it');
  matchLists(t, said, [
    { level: 'info', reason: /ECONNREFUSED/, msg: 'waiting for the database' },
    { level: 'warn', reason: /ECONNREFUSED/, msg: 'waiting for the database' },
    { level: 'warn', msg: 'waiting for the database' },
  ]);
  t.ok(Number(said[1]?.waited_ms) >= 60_000 && Number(said[2]?.waited_ms) - Number(said[1]?.waited_ms) >= 60_000);
  given.abort(new Error('stopping'));
  await t.rejects(wait, /stopping/);
});

t.test('a frozen database is detected, and its connection replaced', async (t) => {
  const server = await privateServer(t);
  const database = open(t, server.url, { maxConnections: 1, statementTimeoutMs: 300, queryTimeoutMs: 500 });
  const before = await backendOf(database);
  server.freeze();
  await t.rejects(database.query('select 1'), { code: 'ServiceUnavailable', cause: /no answer/ });
  await t.rejects(database.query('select 1'), DatabaseUnavailableError, 'connecting has a timeout too');
  server.thaw();
  await waitForDatabase({ database, ...waiting });
  t.not(await backendOf(database), before);
});

t.test('a connection that was cut silently is detected', async (t) => {
  const server = await privateServer(t);
  const relay = await silentRelay(t, server.port);
  const database = open(t, server.url.replace(`:${server.port}/`, `:${relay.port}/`), {
    maxConnections: 1,
    statementTimeoutMs: 300,
    queryTimeoutMs: 500,
  });
  await waitForDatabase({ database, ...waiting });
  relay.silence();
  await t.rejects(database.query('select 1'), DatabaseUnavailableError);
  relay.resume();
  await waitForDatabase({ database, ...waiting });
});

t.test("the server gives up an answer that is not read, and releases the statement's locks", async (t) => {
  const { url, database: other } = await freshDatabase(t);
  await other.query('create table wide (id int, text text)');
  await other.query(`insert into wide values (1, repeat('x', 50000000))`);
  const { hostname, port } = new URL(url);
  const proxy = await CuttableProxy.start({
    host: '127.0.0.1',
    port: 0,
    target: { host: hostname, port: Number(port) },
  });
  t.teardown(() => proxy.stop());
  const behind = new URL(url);
  behind.port = String(proxy.port);
  // This side's own deadline never comes, as in a stopped process.
  const stopped = open(t, behind.href, { clock: new ManualClock(), maxConnections: 1, queryTimeoutMs: 1_000 });
  await stopped.query('select 1');
  proxy.swallow({ only: 'down' });
  const reading = t.rejects(stopped.query('select * from wide for update'));
  await until(async () => (await lockable(other)) === 0, 'the row to be locked while its answer is on its way');
  await until(async () => (await lockable(other)) === 1, 'the row to be free although the answer was not read');
  proxy.heal();
  await reading;
});

t.test('a statement that is too large for the network is slow, and is not sent to its end', async (t) => {
  const { url, database: other } = await freshDatabase(t);
  await other.query('create table wide (text text)');
  const { port } = new URL(url);
  const proxy = await CuttableProxy.start({
    host: '127.0.0.1',
    port: 0,
    target: { host: '127.0.0.1', port: Number(port) },
  });
  t.teardown(() => proxy.stop());
  const behind = new URL(url);
  behind.port = String(proxy.port);
  const said: Record<string, unknown>[] = [];
  const far = open(t, behind.href, { queryTimeoutMs: 1_000, log: recordingLogger(said) });
  const backend = await backendOf(far);
  proxy.throttle(200_000);
  // The operating system takes all of it at once.
  const writing = far.query('insert into wide values ($1)', ['x'.repeat(1_000_000)]);
  await t.rejects(writing, { code: 'ServiceUnavailable', condition: 'unanswered', cause: /no answer/ });
  t.not(await backendOf(far), backend, 'the database is not down');
  const reading = far.query(`select repeat('x', 1000000)`);
  await t.rejects(reading, { code: 'ServiceUnavailable', condition: 'unanswered' });
  t.same(said, [], 'the database does not count as lost');
  const backends = `select 1 from pg_stat_activity where pid = $1::int`;
  await until(async () => (await other.query(backends, [backend])).rowCount === 0, 'the end of the connection');
  t.same((await other.query('select 1 from wide')).rowCount, 0, 'the statement did not arrive');
});

t.test('values that are a function are asked for when the statement has a connection', async (t) => {
  const { open } = await freshDatabase(t);
  const database = open({ maxConnections: 1 });
  let number = 1;
  const before = database.query('select 1', []).then(() => {
    number = 2;
  });
  const { rows } = await database.query('select $1::int as number', () => [number]);
  t.same(rows, [{ number: 2 }]);
  await before;
});

t.test('statements wait for a free connection, but not forever', async (t) => {
  const { open } = await freshDatabase(t);
  const database = open({ maxConnections: 1, connectTimeoutMs: 500 });
  await waitForDatabase({ database, ...waiting });
  const long = database.query('select pg_sleep(4)');
  await t.rejects(database.query('select 1'), { code: 'ServiceUnavailable', cause: /timeout exceeded/ });
  await long;
  await database.query('select 1');
});

t.test('a second stop is harmless, and a stopped pool refuses statements', async (t) => {
  const { open } = await freshDatabase(t);
  const database = open();
  await database.query('select 1');
  await Promise.all([database.stop(), database.stop()]);
  await t.rejects(database.query('select 1'), DatabaseUnavailableError);
});

t.test('a stop does not wait for a frozen database', async (t) => {
  const server = await privateServer(t);
  const database = open(t, server.url, { statementTimeoutMs: 600_000 });
  await database.query('select 1');
  const running = t.rejects(database.query('select pg_sleep(0.5)'), DatabaseUnavailableError);
  await until(() => database.stats.idle === 0);
  server.freeze();
  await database.stop();
  await running;
});

t.test('only the beginning and end of an outage are logged', async (t) => {
  const server = await privateServer(t);
  const said: string[] = [];
  const note = (_fields: unknown, message: string) => void said.push(message);
  const database = open(t, server.url, { log: { ...silentLogger, info: note, warn: note } as unknown as Logger });
  await Promise.all([1, 2, 3].map(() => database.query('select 1')));
  await server.stop();
  for (let i = 0; i < 3; i++) await t.rejects(database.query('select 1'));
  await server.start();
  await waitForDatabase({ database, ...waiting });
  await database.query('select 1');
  t.same(said, ['database: available -> lost', 'database: lost -> available']);
});

async function backendOf(database: Queryable): Promise<number | undefined> {
  return (await database.query<{ pid: number }>('select pg_backend_pid() as pid')).rows[0]?.pid;
}

async function privateServer(t: Test) {
  const server = await startTestPostgres();
  t.teardown(() => server.close());
  return server;
}

function open(t: Test, url: string, options: Parameters<typeof openDatabase>[1] = {}) {
  const database = openDatabase(url, options);
  t.teardown(() => database.stop());
  return database;
}

/**
 * Passes data on until told to stop. Connections stay open, as in a network that drops everything.
 */
async function silentRelay(t: Test, target: number) {
  let isSilent = false;
  const sockets = new Set<Socket>();
  const relay = createServer((near) => {
    const far = connect(target, '127.0.0.1');
    for (const [from, to] of [[near, far] as const, [far, near] as const]) {
      sockets.add(from);
      from.on('data', (bytes) => isSilent || to.write(bytes));
      from.on('error', () => undefined);
      from.on('close', () => isSilent || to.destroy());
    }
  });
  relay.listen(0, '127.0.0.1');
  await once(relay, 'listening');
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
    relay.close();
  });
  const address = relay.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  const setSilent = (value: boolean) => {
    isSilent = value;
  };
  return { port, silence: () => setSilent(true), resume: () => setSilent(false) };
}

async function lockable(database: Queryable): Promise<number> {
  return (await database.query('select id from wide for update skip locked')).rows.length;
}
