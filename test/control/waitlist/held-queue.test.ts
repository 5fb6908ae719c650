/** Another transaction holds the row of one queue, and many callers want it. */
import t from 'tap';
import { MemoryHub } from '../../support/memory-bus.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { memoryBus, startWaitlist } from './support/instances.ts';
import { addOne, migrations, newQueue } from './support/waitlist-database.ts';

t.test('callers of one locked queue leave connections to others', async (t) => {
  const { open } = await freshDatabase(t, { migrations });
  const database = open({ maxConnections: 5 });
  const waitlist = await startWaitlist(t, { database, bus: memoryBus(new MemoryHub()) });
  const queue = newQueue();
  await addOne(database, queue);
  const creates: Promise<unknown>[] = [];
  await open({ maxConnections: 1 }).transaction(async (holder) => {
    await holder.query('select 1 from cnapi_waitlist_queues where id = $1::text for update', [queue.id]);
    for (let n = 0; n < 20; n++)
      creates.push(waitlist.create({ ...queue, expiry: { expiresInSeconds: 60 } }).catch((error) => error));
    // Without a limit of their own the creates would use every connection until the row is free.
    for (let n = 0; n < 5; n++) t.equal((await database.query('select 1')).rowCount, 1);
    const other = await waitlist.create({ ...newQueue(), expiry: { expiresInSeconds: 60 } });
    await t.resolves(waitlist.release(other.uuid), 'tickets of other queues are created and released meanwhile');
  });
  const ended = await Promise.all(creates);
  t.equal(ended.length, 20, 'each was accepted or told to try again');
});
