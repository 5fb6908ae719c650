import t from 'tap';
import { numberEvents } from '../../../lib/control/events/event-store.ts';
import { migrations } from '../../../lib/control/subsystem-list.ts';
import { documentBucket } from '../../../lib/platform/moray/bucket.ts';
import { BucketStore } from '../../../lib/platform/moray/bucket-store.ts';
import { matchLists } from '../../support/match-lists.ts';
import { freshPglite } from '../../support/pglite.ts';
import { freshDatabase } from '../../support/postgres.ts';

const SERVER = '564d5b45-3a8c-4c1f-9d0a-0123456789ab';
const declaration = { name: 'things', version: 1, indexes: { name: { type: 'string' as const } } };
const told = documentBucket({
  ...declaration,
  onChange: { name: 'cnapi_log_document_event', arguments: ['thing', 'server_uuid', 'uuid', 'state'] },
});

for (const kind of ['Postgres', 'PGlite'] as const) {
  const open = async (t: Parameters<typeof freshPglite>[0]) =>
    kind === 'Postgres' ? (await freshDatabase(t, { migrations })).database : freshPglite(t, { migrations });

  t.test(`each change of a document is an event of the same commit, on ${kind}`, async (t) => {
    const database = await open(t);
    const store = new BucketStore({ database });
    await store.ensureBucket(told);
    const events = async () => {
      await numberEvents(database, 100);
      const { rows } = await database.query<{ kind: string; server_uuid: string | null; body: object }>(
        "delete from cnapi_events where kind = 'thing' returning kind, server_uuid, body",
      );
      return rows;
    };
    const { etag } = await store.put(told, 'a', { uuid: 'a', state: 'new', secret: 1, server_uuid: SERVER });
    await store.put(told, 'a', { uuid: 'a', state: 'new', secret: 2, server_uuid: SERVER }, { etag });
    await store.delete(told, 'a');
    t.same(await events(), [
      { kind: 'thing', server_uuid: SERVER, body: { uuid: 'a', state: 'new', change: 'created' } },
      { kind: 'thing', server_uuid: SERVER, body: { uuid: 'a', state: 'new', change: 'updated' } },
      { kind: 'thing', server_uuid: SERVER, body: { uuid: 'a', state: 'new', change: 'deleted' } },
    ]);
    await store.put(told, 'b', { uuid: 'b' });
    matchLists(t, await events(), [{ server_uuid: null, body: { uuid: 'b', state: null, change: 'created' } }]);
    await store.put(told, 'b', { uuid: 'b' });
    await t.rejects(store.put(told, 'b', { uuid: 'c' }, { etag: 'other' }), { code: 'EtagConflict' });
    await t.rejects(store.put(told, 'b', { uuid: 'c' }, { also: () => 'delete from cnapi_events where id = 1 / 0' }), {
      code: 'InvalidQuery',
    });
    t.same(await events(), [], 'what changes nothing is not an event');
  });
}

t.test(
  'a bucket gets its trigger with a new version, and an older instance then tells of its changes, too',
  async (t) => {
    const { database } = await freshDatabase(t, { migrations });
    const store = new BucketStore({ database });
    const silent = documentBucket(declaration);
    await store.ensureBucket(silent);
    await t.rejects(store.ensureBucket(told), {
      code: 'MigrationError',
      message: /another trigger .* raise its version/,
    });
    await store.ensureBucket(documentBucket({ ...told, version: 2 }));
    await store.ensureBucket(silent);
    await store.put(silent, 'a', { uuid: 'a' });
    t.equal((await numberEvents(database, 100)).numbered, 1);
    await store.ensureBucket(documentBucket({ ...declaration, version: 3 }));
    await store.put(silent, 'b', { uuid: 'b' });
    t.equal((await numberEvents(database, 100)).numbered, 1, 'a later version without a trigger leaves it');
  },
);
