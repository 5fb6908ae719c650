/**
 * Another transaction holds the row of one queue, and many callers want it; or its list cannot be
 * read.
 */
import t from 'tap';
import type { Waitlist } from '../../../lib/control/waitlist/waitlist.ts';
import { DatabaseUnavailableError } from '../../../lib/platform/errors.ts';
import type { Database } from '../../../lib/platform/postgres/database.ts';
import { MemoryHub } from '../../support/memory-bus.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { memoryBus, startWaitlist } from './support/instances.ts';
import { addOne, addSome, migrations, newQueue, type Place } from './support/waitlist-database.ts';

const expiry = { expiresInSeconds: 60 };
const CALLERS = 20;

/** What many callers do at once to a queue and its tickets. */
const changes: Record<string, (waitlist: Waitlist, queue: Place, uuid: string) => Promise<unknown>> = {
  create: (waitlist, queue) => waitlist.create({ ...queue, expiry }),
  release: (waitlist, _queue, uuid) => waitlist.release(uuid),
  renew: (waitlist, _queue, uuid) => waitlist.renew(uuid, expiry),
  delete: (waitlist, _queue, uuid) => waitlist.delete(uuid),
};

for (const [name, change] of Object.entries(changes)) {
  t.test(`callers that ${name} tickets of one locked queue leave connections to other queues`, async (t) => {
    const { open } = await freshDatabase(t, { migrations });
    const database = open({ maxConnections: 5 });
    const waitlist = await startWaitlist(t, { database, bus: memoryBus(new MemoryHub()) });
    const queue = newQueue();
    const uuids = await addSome(database, queue, CALLERS);
    const held: Promise<unknown>[] = [];
    await open({ maxConnections: 1 }).transaction(async (holder) => {
      await holder.query('select 1 from cnapi_waitlist_queues where id = $1::text for update', [queue.id]);
      for (const uuid of uuids) held.push(change(waitlist, queue, uuid).catch((error) => error));
      for (let n = 0; n < 5; n++) t.equal((await database.query('select 1')).rowCount, 1);
      const other = await waitlist.create({ ...newQueue(), expiry });
      await t.resolves(waitlist.renew(other.uuid, expiry), 'another queue is served meanwhile');
      await t.resolves(waitlist.release(other.uuid));
      await t.resolves(waitlist.delete(other.uuid));
    });
    t.equal((await Promise.all(held)).length, CALLERS, 'each is carried out or told to try again');
  });
}

t.test('many creates in one long queue at once are all carried out', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const waitlist = await startWaitlist(t, { database, bus: memoryBus(new MemoryHub()) });
  const queue = newQueue();
  await addOne(database, queue);
  const made = await Promise.all(Array.from({ length: 60 }, () => waitlist.create({ ...queue, expiry })));
  t.equal(new Set(made.map(({ uuid }) => uuid)).size, 60);
});

t.test('a ticket that was created is reported although its queue cannot be read', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const blind: Database = {
    ...database,
    transaction: (work) => database.transaction(work),
    stop: () => database.stop(),
    query: (text, values, options) =>
      options?.name === 'read queue up to ticket'
        ? Promise.reject(new DatabaseUnavailableError())
        : database.query(text, values, options),
  };
  const waitlist = await startWaitlist(t, { database: blind, bus: memoryBus(new MemoryHub()) });
  const queue = newQueue();
  for (const request of [{}, { idempotencyKey: 'once' }]) {
    const { uuid, queue: listed } = await waitlist.create({ ...queue, ...request, expiry });
    t.same(listed, []);
    t.match(await waitlist.get(uuid), { uuid });
  }
});
