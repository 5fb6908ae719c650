/**
 * Changes are numbered once each, whatever the order of their commits, and whatever snapshot
 * another transaction holds open.
 */
import pg from 'pg';
import t, { type Test } from 'tap';
import {
  deleteOldEvents,
  deleteSurplusEvents,
  numberEvents,
  readLog,
} from '../../../lib/control/events/event-store.ts';
import { migrations } from '../../../lib/control/subsystem-list.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';
import { blocksRead } from '../../support/blocks-read.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { until } from '../../support/until.ts';
import { fillOutbox } from './support/full-outbox.ts';

const ADD = `insert into cnapi_tasks (id, server_uuid, name, params, timeout_ms, idempotent, request_hash, created_at, queued_at)
  select gen_random_uuid(), gen_random_uuid(), $1::text, '{}', 1, true, 'x', cnapi_now(), cnapi_now() from generate_series(1, $2::int)`;
const MOST = 5_000;

async function newLog(t: Test) {
  const { database, url } = await freshDatabase(t, { migrations });
  const connect = async () => {
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    t.teardown(() => client.end());
    return client;
  };
  const add = (name: string, count = 1) => database.query(ADD, [name, count]);
  const number = async () => (await numberEvents(database, MOST)).numbered;
  const names = async () =>
    (await database.query<{ name: string }>(`select body->>'task' as name from cnapi_events order by id`)).rows.map(
      ({ name }) => name,
    );
  const holes = async () =>
    (
      await database.query<{ holes: number }>(
        'select cardinality(hole_from) as holes from cnapi_event_numberings order by id desc limit 1',
      )
    ).rows[0]?.holes;
  const left = async () =>
    Number((await database.query<{ count: number }>('select count(*) from cnapi_event_outbox')).rows[0]?.count);
  await number();
  return { database, connect, add, number, names, holes, left };
}

t.test('a change that is committed late is numbered late, and once', async (t) => {
  const { connect, add, number, names, holes } = await newLog(t);
  const [early, middle] = [await connect(), await connect()];
  await early.query('begin');
  await early.query(ADD, ['early', 2]);
  await add('first');
  await middle.query('begin');
  await middle.query(ADD, ['middle', 1]);
  await add('second');
  t.equal(await number(), 2);
  t.equal(await holes(), 2, 'each is a hole, however many ids it has');
  t.equal(await number(), 0);
  await middle.query('commit');
  await add('third');
  t.equal(await number(), 2);
  await early.query('commit');
  t.equal(await number(), 2);
  await number();
  t.same(await names(), ['first', 'second', 'middle', 'third', 'early', 'early']);
  t.equal(await holes(), 0);
});

t.test('part of a hole is read, and the rest remains a hole', async (t) => {
  const { connect, add, number, names, holes } = await newLog(t);
  const [one, other] = [await connect(), await connect()];
  for (const client of [one, other]) await client.query('begin');
  for (const name of ['a', 'b']) {
    await one.query(ADD, [`one ${name}`, 1]);
    await other.query(ADD, [`other ${name}`, 1]);
  }
  await add('last');
  t.equal(await number(), 1);
  t.equal(await holes(), 1);
  await other.query('commit');
  t.equal(await number(), 2);
  t.equal(await holes(), 2);
  await one.query('commit');
  t.equal(await number(), 2);
  t.same(await names(), ['last', 'other a', 'other b', 'one a', 'one b']);
});

t.test('a hole of a rolled back transaction is dropped once all transactions beside it have ended', async (t) => {
  const { connect, add, number, holes } = await newLog(t);
  const [undone, beside] = [await connect(), await connect()];
  await beside.query('begin');
  await beside.query('create table beside ()');
  await undone.query('begin');
  await undone.query(ADD, ['undone', 3]);
  await add('done');
  await number();
  await undone.query('rollback');
  await number();
  t.equal(await holes(), 1, 'its transaction is not known yet');
  await beside.query('commit');
  // Transaction ids belong to the whole database cluster: others that use it may have to end first.
  await until(async () => {
    await number();
    return (await holes()) === 0;
  }, 'the hole to be dropped');
});

t.test('a hole is kept while its transaction runs, even if no later transaction has ended', async (t) => {
  const { connect, number, names } = await newLog(t);
  const [first, last] = [await connect(), await connect()];
  await first.query('begin');
  await first.query('select pg_current_xact_id()');
  await last.query('begin');
  await last.query(ADD, ['of the last', 1]);
  await first.query(ADD, ['of the first', 1]);
  await first.query('commit');
  t.equal(await number(), 1);
  for (let times = 0; times < 3; times++) t.equal(await number(), 0);
  await last.query('commit');
  t.equal(await number(), 1);
  t.same(await names(), ['of the first', 'of the last']);
});

t.test('a late transaction with more changes than one numbering takes loses none of them', async (t) => {
  const { connect, add, number, names, holes } = await newLog(t);
  const late = await connect();
  await late.query('begin');
  await late.query(ADD, ['late', MOST + 1_000]);
  await add('early');
  await number();
  t.same(await names(), ['early']);
  await late.query('commit');
  await until(async () => {
    await number();
    return (await holes()) === 0;
  }, 'the hole to be dropped');
  t.equal((await names()).length, MOST + 1_001);
});

t.test('a missed change that is committed after the gap is followed by another gap', async (t) => {
  const { database, connect, add, number } = await newLog(t);
  const gaps = async () => (await database.query(`select 1 from cnapi_events where kind = 'gap'`)).rows.length;
  const late = await connect();
  await add('first');
  await fillOutbox(database);
  await add('missed');
  await late.query('begin');
  await late.query(ADD, ['missed as well', 1]);
  t.equal(await number(), 1);
  t.equal(await gaps(), 1, 'readers are told at once');
  await number();
  t.equal(await gaps(), 1, 'they are not told again while the change is open');
  await late.query('commit');
  // Transaction ids belong to the whole database cluster: others that use it may have to end first.
  await until(async () => {
    await number();
    return (await gaps()) === 2;
  }, 'the second gap');
  await number();
  t.equal(await gaps(), 2);
});

t.test('the outbox is deleted once it is read, but holes in it stay', async (t) => {
  const { connect, add, number, names, left } = await newLog(t);
  const late = await connect();
  await late.query('begin');
  await late.query(ADD, ['late', 1]);
  await add('early', 1_500);
  await number();
  t.equal(await left(), 0, 'as soon as there is enough to delete');
  await late.query('commit');
  t.equal(await left(), 1);
  t.equal(await number(), 1);
  t.equal((await names()).at(-1), 'late');
  t.equal(await left(), 0);
});

t.test('two instances that number at once number each change once', async (t) => {
  const { database, add, names } = await newLog(t);
  const added: string[] = [];
  for (let round = 0; round < 20; round++) {
    added.push(`round ${round}`);
    await Promise.all([add(`round ${round}`), ...[1, 2, 3, 4].map(() => numberEvents(database, MOST))]);
  }
  await numberEvents(database, MOST);
  t.same((await names()).sort(), added.sort());
});

t.test('what numberings and removals note of themselves is deleted when nobody reads it any more', async (t) => {
  const { database, add, number } = await newLog(t);
  const countOf = async (table: string) =>
    (await database.query<{ count: number }>(`select count(*)::int as count from ${table}`)).rows[0]?.count ?? 0;
  for (let each = 0; each < 350; each++) {
    await add('one of many');
    await number();
  }
  const numberings = await countOf('cnapi_event_numberings');
  t.ok(numberings > 100 && numberings <= 200, `${numberings} after 350 numberings`);
  for (let each = 0; each < 250; each++) await deleteSurplusEvents(database, 0, 1);
  const removals = await countOf('cnapi_event_trims');
  t.ok(removals > 0 && removals <= 101, `${removals} after 250 removals`);
  t.match(await readLog(database, 0), { oldest: 251, last: 350 });
});

t.test('an open snapshot makes numbering no slower, however many changes were numbered since', async (t) => {
  const { database, connect, add, number } = await newLog(t);
  const dump = await connect();
  await dump.query('begin isolation level repeatable read');
  await dump.query('select count(*) from cnapi_event_outbox');
  const blocksOf = async () => {
    await add('measured');
    return await blocksRead(database, (counted) => numberEvents(counted, MOST));
  };
  const numbered = async (times: number) => {
    for (let each = 0; each < times; each++) {
      await add('one of many', 10);
      await number();
    }
  };
  const median = async () => [await blocksOf(), await blocksOf(), await blocksOf()].sort((a, b) => a - b)[1] ?? 0;
  await numbered(50);
  const before = await median();
  await numbered(450);
  const after = await median();
  await dump.query('commit');
  t.ok(after < 2 * before, `${before} blocks after 500 changes, ${after} after 5,000`);
});

t.test('an open snapshot slows neither the oldest event nor removals, however many were removed since', async (t) => {
  const { database, connect, add, number } = await newLog(t);
  const dump = await connect();
  await dump.query('begin isolation level repeatable read');
  await dump.query('select count(*) from cnapi_events');
  const works: Record<string, (counted: Queryable) => Promise<unknown>> = {
    readLog: (counted) => readLog(counted, 0),
    deleteSurplusEvents: (counted) => deleteSurplusEvents(counted, 100, MOST),
    deleteOldEvents: (counted) => deleteOldEvents(counted, 7, 10),
  };
  const measure = async () => {
    const read: Record<string, number> = {};
    for (const [name, work] of Object.entries(works)) read[name] = await blocksRead(database, work);
    return read;
  };
  const removeAfter = async (count: number) => {
    await add('one of many', count);
    await number();
    return await deleteSurplusEvents(database, 100, MOST);
  };
  await removeAfter(200);
  await measure();
  const before = await measure();
  t.equal(await removeAfter(4_500), 4_500);
  const after = await measure();
  for (const [name, read] of Object.entries(after))
    t.ok(read < 20 + 2 * (before[name] ?? 0), `${name}: ${before[name]} blocks at first, ${read} after 4,500 removals`);
});
