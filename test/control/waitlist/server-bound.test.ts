/** How many tickets a server may have in all its queues. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { createTicketOnce } from '../../../lib/control/waitlist/ticket-keys.ts';
import { releaseTicket } from '../../../lib/control/waitlist/ticket-store.ts';
import { freshPglite } from '../../support/pglite.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { addSome, createTicket, migrations, newQueue, newTicket } from './support/waitlist-database.ts';

const FEW = { maxWaiting: 100, maxOpen: 3, maxListed: 10 };

for (const name of ['Postgres', 'PGlite']) {
  t.test(`the number of tickets per server is bounded, and an ended one makes room (${name})`, async (t) => {
    const db =
      name === 'PGlite' ? await freshPglite(t, { migrations }) : (await freshDatabase(t, { migrations })).database;
    const serverUuid = randomUUID();
    const ticket = () => newTicket(newQueue({ serverUuid }));
    const key = { key: 'k', requestHash: 'hash', ...FEW };
    const [first = ''] = await addSome(db, newQueue({ serverUuid }), 2);
    const once = ticket();
    t.match(await createTicketOnce(db, once, key), { uuid: once.uuid });
    t.equal(await createTicket(db, ticket(), FEW), 'server-full');
    t.equal(await createTicketOnce(db, ticket(), { ...key, key: 'l' }), 'server-full');
    t.match(await createTicketOnce(db, ticket(), key), { uuid: once.uuid }, 'repeated');
    t.match(await createTicket(db, newTicket(newQueue()), FEW), { length: 1 }, 'another server is not affected');
    await releaseTicket(db, first);
    t.match(await createTicket(db, ticket(), FEW), { length: 1 });
  });
}
