import t from 'tap';
import { documentBucket } from '../../../lib/platform/moray/bucket.ts';
import { BucketStore } from '../../../lib/platform/moray/bucket-store.ts';
import { morayMigrations } from '../../../lib/platform/moray/moray-schema.ts';
import type { Database } from '../../../lib/platform/postgres/database.ts';
import { runBehindLock } from '../../support/lock-waits.ts';
import { matchLists } from '../../support/match-lists.ts';
import { freshDatabase } from '../../support/postgres.ts';

const things = documentBucket({ name: 'things', version: 1, indexes: { serial: { type: 'string', unique: true } } });

t.test('of two concurrent puts of one new key, both succeed or the second gets a conflict', async (t) => {
  const { url, database, open } = await freshDatabase(t, { migrations: morayMigrations });
  const store = new BucketStore({ database });
  await store.ensureBucket(things);
  // Both wait between the lookup of the key and its entry in the first index.
  await database.query(`
    create function wait_at_gate(text) returns text language plpgsql immutable
      as 'begin perform pg_advisory_xact_lock_shared(1); return $1; end';
    create index gate on things (wait_at_gate(_key));
    alter table things drop constraint things__key_key, add constraint things__key_key unique (_key)`);
  const atOnce = async (key: string, options = {}) => {
    const put = (one: BucketStore) => Promise.allSettled([one.put(things, key, { serial: key }, options)]);
    const both = [store, new BucketStore({ database: open() })];
    const legs = both.map((one, index) => ({ name: `put ${index}`, run: () => put(one) }));
    return (await runBehindLock(url, 'select pg_advisory_xact_lock(1)', legs)).flat();
  };
  matchLists(t, await atOnce('a'), [{ status: 'fulfilled' }, { status: 'fulfilled' }]);
  const created = await atOnce('b', { etag: null });
  matchLists(t, created.map(({ status }) => status).toSorted(), ['fulfilled', 'rejected']);
  const refused = created.find(({ status }) => status === 'rejected');
  t.match(refused, { reason: { code: 'EtagConflict' } });
  await t.rejects(store.put(things, 'c', { serial: 'b' }), { code: 'UniqueAttribute' });
});

t.test('a put that fails by a deadlock is tried up to three times in all', async (t) => {
  const deadlock = Object.assign(new Error('deadlock detected'), { code: '40P01' });
  const failing = (failures: number) => {
    const outcomes = Array.from({ length: failures }, () => Promise.reject(deadlock));
    for (const outcome of outcomes) outcome.catch(() => undefined);
    const query = () => outcomes.shift() ?? Promise.resolve({ rows: [{ _etag: 'x' }], rowCount: 1 });
    return new BucketStore({ database: { query } as unknown as Database });
  };
  t.same(await failing(2).put(things, 'a', {}), { etag: 'x' });
  await t.rejects(failing(3).put(things, 'a', {}), deadlock);
});
