import t from 'tap';
import { type DocumentDeclaration, documentBucket } from '../../../lib/platform/moray/bucket.ts';
import { BucketStore } from '../../../lib/platform/moray/bucket-store.ts';
import { and, eq, type Filter } from '../../../lib/platform/moray/filter.ts';
import { morayMigrations } from '../../../lib/platform/moray/moray-schema.ts';
import { freshDatabase } from '../../support/postgres.ts';

const things = (version: number, indexes: DocumentDeclaration['indexes']) =>
  documentBucket({ name: 'things', version, indexes });
const first = things(1, { name: { type: 'string' } });
const second = things(2, {
  name: { type: 'string' },
  size: { type: 'number' },
  made: { type: 'timestamp' },
  serial: { type: 'string', unique: true },
});

const count = async (store: BucketStore, filter: Filter) =>
  (await store.page(second, filter, { limit: 10, bytes: 1e6 })).objects.length;

t.test('several instances that start at once create a bucket once', async (t) => {
  const { database, open } = await freshDatabase(t, { migrations: morayMigrations });
  const stores = [1, 2, 3, 4].map(() => new BucketStore({ database: open({ maxConnections: 1 }) }));
  await Promise.all(stores.map((store, index) => store.ensureBucket(index % 2 === 0 ? first : second)));
  const store = new BucketStore({ database });
  await store.put(second, 'a', { size: 1 });
  t.equal(await count(store, eq('size', 1)), 1);
});

t.test('new indexes include existing objects and those that older versions write later', async (t) => {
  const { database, open } = await freshDatabase(t, { migrations: morayMigrations });
  const older = new BucketStore({ database: open() });
  await older.ensureBucket(first);
  await older.put(first, 'a', { name: 'x', size: 5, made: '2024-01-01' });
  await older.put(first, 'b', { name: 'x', size: 'not a number', made: '2024-02-31' });
  const newer = new BucketStore({ database });
  await newer.ensureBucket(second);
  t.equal(await count(newer, eq('size', 5)), 1);
  t.equal(await count(newer, eq('made', '2024-01-01T00:00:00Z')), 1);
  await older.put(first, 'c', { name: 'x', size: 5, serial: 's' });
  t.equal(await count(newer, eq('size', 5)), 2);
  await older.ensureBucket(first);
  t.equal(await count(older, and()), 3);
  await t.rejects(
    older.put(first, 'd', { serial: 's' }),
    { code: 'UniqueAttribute' },
    'newer rules hold for older versions',
  );
});

t.test('a declaration may only add to the previous one, and only with a new version', async (t) => {
  const { database } = await freshDatabase(t, { migrations: morayMigrations });
  const store = new BucketStore({ database });
  await store.ensureBucket(first);
  const sameVersion = things(1, { name: { type: 'string' }, size: { type: 'number' } });
  await t.rejects(store.ensureBucket(sameVersion), { code: 'MigrationError', message: /raise its version/ });
  await t.rejects(store.ensureBucket(things(2, { name: { type: 'number' } })), {
    message: /name is indexed as string/,
  });
});

t.test('names that cannot be quoted safely or told apart are refused at declaration', async (t) => {
  for (const name of ['', 'a"b', 'A', '1a', 'a'.repeat(31)])
    t.throws(() => documentBucket({ name, version: 1, indexes: {} }), TypeError, name);
  for (const field of ['', '_key', 'a b', 'a"', 'é'])
    t.throws(() => things(1, { [field]: { type: 'string' } }), TypeError, field);
});
