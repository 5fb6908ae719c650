import t from 'tap';
import type { BucketObject } from '../../lib/moray/bucket.ts';
import { BucketStore } from '../../lib/moray/bucket-store.ts';
import { and, eq, ge } from '../../lib/moray/filter.ts';
import { queuesBucket, ticketsBucket } from '../../lib/waitlist/ticket-bucket.ts';
import { freshDatabase } from '../support/postgres.ts';
import { addOne, addSome, migrations, newQueue } from './support/waitlist-database.ts';

t.test('tickets and queues are read like any bucket', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const store = new BucketStore({ database });
  const queue = newQueue({ serverUuid: 'default' });
  const uuid = await addOne(database, queue, {
    action: 'start',
    reqId: 'r1',
    expiry: { atMs: Date.parse('3000'), text: '3000' },
  });
  await addSome(database, queue, 2);
  t.match(await store.get(ticketsBucket, uuid), {
    key: uuid,
    value: {
      uuid,
      server_uuid: 'default',
      scope: 'vm',
      id: queue.id,
      action: 'start',
      reqid: 'r1',
      status: 'active',
      place: 1,
    },
  });
  const waiting = and(eq('status', 'queued'), eq('id', queue.id), ge('expires_at', '2020-01-01'));
  t.equal(await store.count(ticketsBucket, waiting), 2);
  let found: BucketObject | undefined;
  for await (const one of store.find(queuesBucket, eq('server_uuid', 'default'))) found = one;
  t.match(found?.value, { scope: 'vm', id: queue.id, last_place: 3 });
  t.same(await store.get(queuesBucket, found?.key ?? ''), found);
});
