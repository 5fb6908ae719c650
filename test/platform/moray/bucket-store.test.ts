import t, { type Test } from 'tap';
import { documentBucket } from '../../../lib/platform/moray/bucket.ts';
import { BucketStore } from '../../../lib/platform/moray/bucket-store.ts';
import { and, eq, type Filter, startsWith } from '../../../lib/platform/moray/filter.ts';
import { morayMigrations } from '../../../lib/platform/moray/moray-schema.ts';
import type { Database, Queryable } from '../../../lib/platform/postgres/database.ts';
import type { StatementPart } from '../../../lib/platform/postgres/sql-text.ts';
import { matchLists } from '../../support/match-lists.ts';
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
    await database.query('truncate things');
  });
  const keys = async (filter: Filter) => {
    const { objects } = await store.page(things, filter, { limit: 100, bytes: 1e6 });
    return objects.map(({ key }) => key);
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
    t.equal(new Set(etags).size, 3);
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
    for (const [field, value] of Object.entries(wrong))
      await t.rejects(store.put(things, 'a', { [field]: value }), { code: 'InvalidQuery', errors: [{ field }] }, field);
    await t.rejects(store.put(things, 'a', { note: 'a\0b' }), { code: 'InvalidQuery', statusCode: 400 });
    await t.rejects(store.put(things, 'a', { note: '\ud800' }), { code: 'InvalidQuery' });
    await t.rejects(store.put(things, 'a', { name: noise(20_000) }), { code: 'InvalidQuery' });
    await t.rejects(store.put(things, '', {}), { code: 'InvalidQuery' });
    await t.rejects(store.put(things, 'k'.repeat(513), {}), { code: 'InvalidQuery' });
    t.same(await keys(and()), []);
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
    matchLists(
      t,
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
    t.same(await keys(and()), ['b', 'c', 'd'], 'either all objects of a call are created or none');
  });

  t.test('filters find the objects that they describe', async (t) => {
    const owner = '564d1f6c-5d0f-4a2e-9a6b-0123456789ab';
    await store.put(things, 'a', { name: 'Apple', size: 1, setup: true, made: '2024-01-01T00:00:00Z', owner });
    await store.put(things, 'b', { name: 'apple_pie', size: 10, setup: false, made: '2024-01-02T01:00:00+02:00' });
    await store.put(things, 'c', { name: '100%(*)', size: 9 });
    await store.put(things, 'd', { name: 'x\\y' });
    await store.put(things, 'e', {});
    const cases: [Filter, string][] = [
      [eq('name', 'Apple'), 'a'],
      [startsWith('name', 'apple'), 'b'],
      [startsWith('name', 'x\\'), 'd'],
      [startsWith('name', '100%('), 'c'],
      [eq('size', '1.0'), 'a'],
      [eq('setup', true), 'a'],
      [eq('made', '2024-01-01T23:00:00Z'), 'b'],
      [eq('made', '2024-01-01'), 'a'],
      [eq('owner', owner.toUpperCase()), 'a'],
      [and(startsWith('name', 'apple'), eq('size', 10)), 'b'],
      [and(startsWith('name', 'apple'), eq('size', 9)), ''],
      [eq('_key', 'b'), 'b'],
      [and(), 'abcde'],
    ];
    for (const [filter, expected] of cases) t.equal((await keys(filter)).join(''), expected, JSON.stringify(filter));
    await t.rejects(keys(eq('color', 'red')), { code: 'NotIndexed' });
  });

  t.test('pages follow each other by key, also while objects are added and removed', async (t) => {
    for (const key of ['d', 'b', 'c', 'a', 'e']) await store.put(things, key, { size: 1 });
    const page = (after?: string, limit = 2) => store.page(things, eq('size', 1), { limit, after, bytes: 1e6 });
    const seen = ({ objects, next }: Awaited<ReturnType<typeof page>>) => [
      objects.map(({ key }) => key).join(''),
      next,
    ];
    t.same(seen(await page()), ['ab', 'b']);
    await store.delete(things, 'b');
    await store.put(things, 'aa', { size: 1 });
    t.same(seen(await page('b')), ['cd', 'd'], 'a page begins after a key, whether or not it still exists');
    t.same(seen(await page('d')), ['e', undefined]);
    t.same(seen(await page('e')), ['', undefined]);
    t.same(seen(await page(undefined, 5)), ['aaacde', undefined], 'a page that is exactly full may be the last');
    for (const limit of [-1, 1.5, Number.NaN]) await t.rejects(page(undefined, limit), { code: 'InvalidQuery' });
  });

  t.test('a page ends before its values become too long, and has at least one object', async (t) => {
    for (const key of ['a', 'b', 'c']) await store.put(things, key, { note: 'x'.repeat(1_000) });
    const page = (bytes: number) => store.page(things, and(), { limit: 10, bytes });
    matchLists(t, await page(1_500), { objects: [{ key: 'a' }, { key: 'b' }], next: 'b' });
    matchLists(t, await page(1), { objects: [{ key: 'a' }], next: 'a' });
    t.match(await page(3_000), { objects: { length: 3 }, next: undefined });
  });

  t.test('objects are counted by the value of a field', async (t) => {
    for (const [key, name] of Object.entries({ a: 'x', b: 'y', c: 'x', d: undefined }))
      await store.put(things, key, { name });
    t.same(await store.countBy(things, 'name'), { x: 2, y: 1 });
    await t.rejects(store.countBy(things, 'color'), { code: 'NotIndexed' });
  });

  t.test('a further write commits together with the write that it accompanies', async (t) => {
    await database.query('create table if not exists notes (note text primary key)');
    const note =
      (text: string): StatementPart =>
      (parameters) =>
        `insert into notes values (${parameters.add(text, 'text')})`;
    const notes = async () => {
      const { rows } = await database.query<{ note: string }>('delete from notes returning note');
      return rows.map((row) => row.note).toSorted();
    };
    const { etag } = await store.put(things, 'a', { serial: '1' }, { etag: null, also: note('created') });
    const second = await store.put(things, 'a', { serial: '2' }, { etag, also: note('changed') });
    await store.put(things, 'a', { serial: '3' }, { also: note('replaced') });
    await store.delete(things, 'a', { also: note('deleted') });
    t.same(await notes(), ['changed', 'created', 'deleted', 'replaced']);
    await store.put(things, 'b', { serial: '3' });
    const lost = { etag: second.etag, also: note('the condition did not hold') };
    await t.rejects(store.put(things, 'b', {}, lost), { code: 'EtagConflict' });
    t.same(await notes(), ['the condition did not hold'], 'the attempt is recorded');
    await t.rejects(store.put(things, 'c', { serial: '3' }, { also: note('failed') }), { code: 'UniqueAttribute' });
    await store.put(things, 'd', {}, { also: note('x') });
    await t.rejects(store.put(things, 'e', {}, { also: note('x') }), { code: 'UniqueAttribute' });
    t.same(await notes(), ['x'], 'a statement that fails writes neither');
    t.same(await keys(and()), ['b', 'd']);
  });
}

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
    t.same((await store.get(things, 'a')).value, { size: 2 });
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

/** Text that does not compress, so that no index accepts it. */
function noise(length: number): string {
  let state = 1;
  const next = () => {
    state = (state * 48_271) % 2_147_483_647;
    return String.fromCharCode(33 + (state % 90));
  };
  return Array.from({ length }, next).join('');
}
