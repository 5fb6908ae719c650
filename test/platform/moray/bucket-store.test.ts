import t, { type Test } from 'tap';
import { columnsBucket, documentBucket } from '../../../lib/platform/moray/bucket.ts';
import { BucketStore } from '../../../lib/platform/moray/bucket-store.ts';
import { and, eq, everything, type Filter, ge, not, oneOf, or, present } from '../../../lib/platform/moray/filter.ts';
import { parseFilter } from '../../../lib/platform/moray/filter-text.ts';
import { morayMigrations } from '../../../lib/platform/moray/moray-schema.ts';
import type { Database, Queryable } from '../../../lib/platform/postgres/database.ts';
import { HANG_MS } from '../../support/patience.ts';
import { freshPglite } from '../../support/pglite.ts';
import { freshDatabase } from '../../support/postgres.ts';

const things = documentBucket({
  name: 'things',
  version: 1,
  indexes: {
    name: { type: 'string' },
    serial: { type: 'string', unique: true },
    size: { type: 'number' },
    setup: { type: 'boolean' },
    made: { type: 'timestamp' },
    owner: { type: 'uuid' },
  },
});

t.test('on Postgres', async (t) => {
  const { database } = await freshDatabase(t, { migrations: morayMigrations });
  await contract(t, database);
  await underLocks(t, database);
});

t.test('on PGlite', async (t) => {
  await contract(t, await freshPglite(t, { migrations: morayMigrations }));
});

async function contract(t: Test, database: Database): Promise<void> {
  const store = new BucketStore({ database });
  await store.ensureBucket(things);
  t.beforeEach(async () => {
    await store.deleteMany(things, everything);
  });
  const keys = async (filter: Filter, options = {}) => {
    const found = await all(store.find(things, filter, options));
    return found.map((object) => object.key);
  };

  t.test('a get returns what was put, with an etag and a time', async (t) => {
    const value = { name: 'é"\'\\', size: 1.5, deep: { a: [1, null, 'x'] }, nothing: null };
    const { etag } = await store.put(things, 'a/b c', value);
    const object = await store.get(things, 'a/b c');
    t.strictSame(object.value, value);
    t.match(object, { bucket: 'things', key: 'a/b c', etag });
    t.type(object.mtime, Date);
  });

  t.test('a missing object gives ObjectNotFound', async (t) => {
    await t.rejects(store.get(things, 'none'), { code: 'ObjectNotFound', statusCode: 404 });
    await t.rejects(store.get(things, 'no\0ne'), { code: 'ObjectNotFound' });
    await t.rejects(store.delete(things, 'none'), { code: 'ObjectNotFound' });
    await t.rejects(store.delete(things, 'none', { etag: 'x' }), { code: 'ObjectNotFound' });
  });

  t.test('every write gives a new etag, even for the same value', async (t) => {
    const etags = [];
    for (let i = 0; i < 3; i++) etags.push((await store.put(things, 'a', { name: 'a' })).etag);
    await store.updateMany(things, everything, { name: 'a' });
    etags.push((await store.get(things, 'a')).etag);
    t.equal(new Set(etags).size, 4);
  });

  t.test('a put or delete with an etag needs that etag', async (t) => {
    const first = await store.put(things, 'a', { n: 1 }, { etag: null });
    const conflict = { code: 'EtagConflict', statusCode: 409, actual: first.etag };
    await t.rejects(store.put(things, 'a', { n: 2 }, { etag: null }), conflict);
    await t.rejects(store.put(things, 'a', { n: 2 }, { etag: 'other' }), conflict);
    await t.rejects(store.delete(things, 'a', { etag: 'other' }), conflict);
    await t.rejects(store.put(things, 'b', { n: 2 }, { etag: first.etag }), { code: 'EtagConflict', actual: null });
    const second = await store.put(things, 'a', { n: 2 }, { etag: first.etag });
    await t.rejects(store.put(things, 'a', { n: 3 }, { etag: first.etag }), {
      code: 'EtagConflict',
      actual: second.etag,
    });
    t.same((await store.get(things, 'a')).value, { n: 2 });
    await store.delete(things, 'a', { etag: second.etag });
    await store.put(things, 'a', { n: 4 }, { etag: null });
  });

  t.test('of many concurrent puts with one etag, one succeeds', async (t) => {
    const { etag } = await store.put(things, 'a', { n: 0 });
    const outcomes = await Promise.allSettled([1, 2, 3, 4, 5].map((n) => store.put(things, 'a', { n }, { etag })));
    t.equal(outcomes.filter(({ status }) => status === 'fulfilled').length, 1);
    for (const outcome of outcomes) if (outcome.status === 'rejected') t.equal(outcome.reason.code, 'EtagConflict');
  });

  t.test('a unique field refuses a second value, and the conflict names it', async (t) => {
    await store.put(things, 'a', { serial: 's' });
    const refused = { code: 'UniqueAttribute', statusCode: 409, errors: [{ field: 'serial' }] };
    await t.rejects(store.put(things, 'b', { serial: 's' }), refused);
    await t.rejects(store.put(things, 'b', { serial: 's' }, { etag: null }), refused);
    await t.rejects(store.put(things, 'a', { serial: 's' }, { etag: null }), { code: 'EtagConflict' });
    await store.put(things, 'a', { serial: 's', name: 'again' });
    await store.put(things, 'b', { serial: null });
    await store.put(things, 'c', {});
  });

  t.test('values that cannot be stored or indexed are refused, naming the field', async (t) => {
    const wrong = { name: 5, size: '5', setup: 'true', made: '2023-02-29', owner: 'me' };
    for (const [field, value] of Object.entries(wrong)) {
      await t.rejects(store.put(things, 'a', { [field]: value }), { code: 'InvalidQuery', errors: [{ field }] }, field);
      await t.rejects(store.updateMany(things, everything, { [field]: value }), { code: 'InvalidQuery' }, field);
    }
    await t.rejects(store.put(things, 'a', { note: 'a\0b' }), { code: 'InvalidQuery', statusCode: 400 });
    await t.rejects(store.put(things, 'a', { note: '\ud800' }), { code: 'InvalidQuery' });
    await t.rejects(store.put(things, 'a', { name: noise(20_000) }), { code: 'InvalidQuery' });
    await t.rejects(store.put(things, '', {}), { code: 'InvalidQuery' });
    await t.rejects(store.put(things, 'k'.repeat(513), {}), { code: 'InvalidQuery' });
    t.equal(await store.count(things, everything), 0);
  });

  t.test('many objects are read and created in one statement, and existing ones stay unchanged', async (t) => {
    const { etag } = await store.put(things, 'b', { serial: '1', size: 1 });
    const objects = new Map([
      ['c', { serial: '2' }],
      ['b', { serial: '3' }],
      ['a', { serial: '1' }],
      ['d', { size: 4 }],
    ]);
    const created = await store.createMany(things, objects);
    t.same([...created.keys()].toSorted(), ['c', 'd'], 'the key of b and the serial of a are taken');
    const found = await store.getMany(things, ['a', 'b', 'c', 'd']);
    t.match(
      [...found.values()].toSorted((one, other) => one.key.localeCompare(other.key)),
      [
        { key: 'b', value: { serial: '1', size: 1 }, etag },
        { key: 'c', value: { serial: '2' }, etag: created.get('c') },
        { key: 'd', value: { size: 4 }, etag: created.get('d') },
      ],
    );
    await t.rejects(
      store.createMany(
        things,
        new Map<string, object>([
          ['e', {}],
          ['f', { size: 'large' }],
        ]),
      ),
      {
        code: 'InvalidQuery',
      },
    );
    t.same(await keys(everything), ['b', 'c', 'd'], 'either all objects of a call are created or none');
  });

  t.test('filters find the objects that they describe', async (t) => {
    const owner = '564d1f6c-5d0f-4a2e-9a6b-0123456789ab';
    await store.put(things, 'a', { name: 'Apple', size: 1, setup: true, made: '2024-01-01T00:00:00Z', owner });
    await store.put(things, 'b', { name: 'apple_pie', size: 10, setup: false, made: '2024-01-02T01:00:00+02:00' });
    await store.put(things, 'c', { name: '100%(*)', size: 9 });
    await store.put(things, 'd', { name: 'x\\y' });
    await store.put(things, 'e', {});
    const cases: Record<string, string> = {
      '(name=Apple)': 'a',
      '(name:caseIgnoreMatch:=APPLE)': 'a',
      '(name:caseIgnoreSubstringsMatch:=*PPLE*)': 'ab',
      '(name=*e_p*)': 'b',
      '(name=apple*)': 'b',
      '(name=*%\\28\\2a\\29)': 'c',
      '(name=x\\5c*)': 'd',
      '(name=*)': 'abcd',
      '(!(name=*))': 'e',
      '(size>=9)': 'bc',
      '(size<=9)': 'ac',
      '(size=1.0)': 'a',
      '(setup=true)': 'a',
      '(!(setup=true))': 'bcde',
      '(made>=2024-01-01T23:00:00Z)': 'b',
      '(made<=2024-01-01)': 'a',
      '(owner=564D1F6C-5D0F-4A2E-9A6B-0123456789AB)': 'a',
      '(owner=564d*)': 'a',
      '(&(size>=1)(!(|(setup=true)(setup=false))))': 'c',
      '(|(name=Apple)(name=x\\5cy)(size=10))': 'abd',
      '(!(|(size=1)(size=10)))': 'cde',
      '(_key=b)': 'b',
      '(&)': 'abcde',
      '(|)': '',
    };
    for (const [text, expected] of Object.entries(cases)) {
      t.equal((await keys(parseFilter(text))).join(''), expected, text);
      t.equal(await store.count(things, parseFilter(text)), expected.length, `count of ${text}`);
    }
    await t.rejects(keys(eq('color', 'red')), { code: 'NotIndexed' });
    await t.rejects(keys(everything, { sort: [{ field: 'color' }] }), { code: 'NotIndexed' });
  });

  t.test('a find honours order, offset and limit', async (t) => {
    for (const [key, size] of Object.entries({ a: 2, b: 1, c: 2, d: 10 })) await store.put(things, key, { size });
    t.same(await keys(everything), ['a', 'b', 'c', 'd']);
    t.same(await keys(everything, { sort: [{ field: 'size' }] }), ['b', 'a', 'c', 'd']);
    t.same(
      await keys(everything, {
        sort: [
          { field: 'size', order: 'desc' },
          { field: '_key', order: 'desc' },
        ],
      }),
      ['d', 'c', 'a', 'b'],
    );
    t.same(await keys(everything, { limit: 2, offset: 1 }), ['b', 'c']);
    t.same(await keys(everything, { limit: 0 }), []);
    for (const limit of [-1, 1.5, Number.NaN]) await t.rejects(keys(everything, { limit }), { code: 'InvalidQuery' });
  });

  t.test('many objects are updated and deleted at once', async (t) => {
    for (const key of ['a', 'b', 'c', 'd'])
      await store.put(things, key, { name: key, size: key.charCodeAt(0), kept: 1 });
    t.equal(await store.updateMany(things, ge('size', 99), { setup: true, name: null }), 2);
    t.same(await keys(eq('setup', true)), ['c', 'd']);
    t.same((await store.get(things, 'c')).value, { name: null, size: 99, setup: true, kept: 1 });
    t.equal(await store.deleteMany(things, not(present('setup')), { limit: 1 }), 1);
    t.same(await keys(everything), ['b', 'c', 'd']);
    t.equal(await store.deleteMany(things, or(eq('setup', true), eq('name', 'b'))), 3);
    t.equal(await store.deleteMany(things, everything), 0);
  });

  t.test('a batch is applied as a whole or not at all', async (t) => {
    const { etag } = await store.put(things, 'a', { size: 1 });
    const put = { kind: 'put', bucket: things, key: 'b', value: { size: 2 } } as const;
    await t.rejects(store.batch([put, { kind: 'put', bucket: things, key: 'a', value: {}, etag: 'other' }]), {
      code: 'EtagConflict',
    });
    t.same(await keys(everything), ['a']);
    const results = await store.batch([
      put,
      { kind: 'delete', bucket: things, key: 'a', etag },
      { kind: 'updateMany', bucket: things, filter: everything, fields: { size: 3 } },
      { kind: 'deleteMany', bucket: things, filter: eq('size', 4) },
    ]);
    t.match(results, [{ etag: String }, { count: 1 }, { count: 1 }, { count: 0 }]);
    t.same((await store.get(things, 'b')).value, { size: 3 });
    await t.rejects(store.batch(Array.from({ length: 1_001 }, () => put)), { code: 'InvalidQuery' });
  });

  t.test('a table with columns can be read like any bucket', async (t) => {
    await database.query(`
      create table seats (
        server_uuid uuid primary key, status text not null, epoch int8 not null, since timestamptz not null, note text);
      insert into seats values
        ('564d1f6c-5d0f-4a2e-9a6b-0123456789ab', 'running', 7, '2024-01-01T00:00:00.5Z', null),
        ('664d1f6c-5d0f-4a2e-9a6b-0123456789ab', 'unknown', 8, '2024-01-02T00:00:00Z', 'x')`);
    const seats = columnsBucket({
      name: 'seats',
      key: 'server_uuid',
      fields: {
        server_uuid: { type: 'uuid' },
        status: { type: 'string' },
        epoch: { type: 'number' },
        since: { type: 'timestamp' },
        noted: { type: 'boolean', sql: '(note is not null)' },
      },
      etag: 'epoch',
      mtime: 'since',
    });
    const key = '564d1f6c-5d0f-4a2e-9a6b-0123456789ab';
    const expected = {
      bucket: 'seats',
      key,
      value: { server_uuid: key, status: 'running', epoch: 7, since: '2024-01-01T00:00:00.500Z', noted: false },
      etag: '7',
      mtime: new Date('2024-01-01T00:00:00.500Z'),
    };
    t.strictSame(await store.get(seats, key.toUpperCase()), expected);
    await t.rejects(store.get(seats, 'nobody'), { code: 'ObjectNotFound' });
    const found = async (filter: Filter) => (await all(store.find(seats, filter))).map(({ value }) => value.epoch);
    t.same(await found(and(eq('status', 'running'), eq('_key', key))), [7]);
    t.same(await found(oneOf('epoch', [7, 8])), [7, 8]);
    t.same(await found(eq('noted', true)), [8]);
    t.same(await found(ge('_mtime', '2024-01-02')), [8]);
    t.equal(await store.count(seats, everything), 2);
  });
}

t.test('a find that ends early returns its connection', async (t) => {
  const { database, open } = await freshDatabase(t, { migrations: morayMigrations });
  const single = open({ maxConnections: 1 });
  const store = new BucketStore({ database: single });
  await store.ensureBucket(things);
  await database.query('create view long as select n from generate_series(1, 100000) as n');
  const long = columnsBucket({
    name: 'long',
    key: 'n',
    fields: { n: { type: 'number' } },
    etag: 'n',
    mtime: 'cnapi_now()',
  });
  const seen = [];
  for await (const { value } of store.find(long, everything)) if (seen.push(value.n) === 3) break;
  t.same(seen, [1, 2, 3]);
  t.equal(single.stats.idle, 1);
  t.equal(await store.count(things, everything), 0);
});

/** How a statement behaves that had to wait for another's lock. */
async function underLocks(t: Test, database: Database): Promise<void> {
  const store = new BucketStore({ database });
  const held = async (statement: string, contender: () => Promise<unknown>) => {
    let contending: Promise<unknown> = Promise.resolve();
    await database.transaction(async (connection) => {
      await connection.query(statement);
      contending = contender();
      contending.catch(() => undefined);
      await aWaiter(connection);
    });
    return contending;
  };

  t.test('an update of many skips objects that no longer match and keeps concurrent changes', async (t) => {
    await store.put(things, 'a', { size: 1, name: 'before' });
    await store.put(things, 'b', { size: 1, name: 'before' });
    const text = `update things set _value = _value || '{"size": 2, "name": "meanwhile"}' where _key = 'a'`;
    t.equal(await held(text, () => store.updateMany(things, eq('size', 1), { setup: true })), 1);
    t.same((await store.get(things, 'a')).value, { size: 2, name: 'meanwhile' });
    const again = text.replace('2', '3');
    t.equal(await held(again, () => store.updateMany(things, everything, { setup: false })), 2);
    t.same((await store.get(things, 'a')).value, { size: 3, name: 'meanwhile', setup: false });
  });

  t.test('a put or delete with an etag fails after waiting for another write', async (t) => {
    const text = `update things set _value = '{"size": 2}', _etag = 'meanwhile' where _key = 'a'`;
    const first = await store.put(things, 'a', { size: 1 });
    const lost = { code: 'EtagConflict', actual: 'meanwhile' };
    await t.rejects(
      held(text, () => store.put(things, 'a', {}, { etag: first.etag })),
      lost,
    );
    const second = await store.put(things, 'a', { size: 1 });
    await t.rejects(
      held(text, () => store.delete(things, 'a', second)),
      lost,
    );
    t.equal(await held(text.replace('2', '3'), () => store.deleteMany(things, eq('size', 2))), 0);
    t.same((await store.get(things, 'a')).value, { size: 3 });
  });

  t.test('batches that write the same objects in different orders do not deadlock', async (t) => {
    for (const key of ['a', 'b']) await store.put(things, key, { size: 0 });
    const put = (key: string) => ({ kind: 'put', bucket: things, key, value: { size: 1 } }) as const;
    const filler = Array.from({ length: 50 }, (_, index) => put(`filler ${index}`));
    const orders = [
      [put('a'), ...filler, put('b')],
      [put('b'), ...filler.toReversed(), put('a')],
    ];
    for (let round = 0; round < 3; round++) await Promise.all(orders.map((operations) => store.batch(operations)));
    t.equal(await store.count(things, eq('size', 1)), 52);
  });
}

/** Resolves when some statement waits for a lock. */
async function aWaiter(connection: Queryable): Promise<void> {
  const text =
    'select 1 from pg_locks where not granted and database = (select oid from pg_database where datname = current_database())';
  const anyLock = "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
  for (const deadline = Date.now() + HANG_MS; Date.now() < deadline; ) {
    if ((await connection.query(text)).rowCount + (await connection.query(anyLock)).rowCount > 0) return;
  }
  throw new Error('no statement waits for the lock');
}

async function all<Item>(items: AsyncIterable<Item>): Promise<Item[]> {
  const list: Item[] = [];
  for await (const item of items) list.push(item);
  return list;
}

/** Text that does not compress, so that no index accepts it. */
function noise(length: number): string {
  let state = 1;
  const next = () => {
    state = (state * 48_271) % 2_147_483_647;
    return String.fromCharCode(33 + (state % 90));
  };
  return Array.from({ length }, next).join('');
}
