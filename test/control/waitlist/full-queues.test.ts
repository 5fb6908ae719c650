/**
 * Full queues whose tickets are all due at one moment, as after a long outage, and very many
 * queues. Work that is quadratic in their number would exceed the statement timeout, at every new
 * attempt.
 */
import t from 'tap';
import {
  deleteQueues,
  expireTickets,
  readLastQueue,
  releaseTicket,
  repairQueues,
} from '../../../lib/control/waitlist/ticket-store.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { addOne, complaints, migrations, newQueue, type Place, statusOf } from './support/waitlist-database.ts';

const WAITING = 10_000;

t.setTimeout(FILE_TIMEOUT_MS);

t.test('full queues whose tickets are due', async (t) => {
  const { database: db } = await freshDatabase(t, { migrations });

  t.test('full queues expire one after the other', async (t) => {
    const holders = [];
    for (let n = 0; n < 3; n++) holders.push(await fill(db, newQueue(), '-1 second'));
    await db.query(`update cnapi_waitlist_tickets set expires_at = cnapi_now() - interval '1 minute' where place = 1`);
    for (let left = 3 * (WAITING + 1); left > 0; ) left -= (await expireTickets(db, 200)).length;
    for (const holder of holders) t.equal(await statusOf(db, holder), 'expired');
    t.same(await complaints(db), []);
  });

  t.test('a release passes over all tickets that are due', async (t) => {
    const queue = newQueue();
    const holder = await fill(db, queue, '-1 second');
    await db.query(
      `update cnapi_waitlist_tickets set expires_at = cnapi_now() + interval '1 hour' where id = $1::text and place > $2`,
      [queue.id, WAITING],
    );
    const released = await releaseTicket(db, holder);
    t.equal(released?.moved.length, WAITING + 1);
    t.match(released?.moved.at(-1), { status: 'active' });
    t.same(await complaints(db), []);
  });

  t.test('several full queues are deleted in one statement', async (t) => {
    const serverUuid = 'full';
    for (let n = 0; n < 3; n++) await fill(db, newQueue({ serverUuid }), '1 hour');
    const { queues } = await deleteQueues(db, serverUuid, { last: await readLastQueue(db), maxQueues: 3 });
    t.equal(queues, 3);
  });
});

t.test('many queues created since the last analyze are all seen to have a holder', async (t) => {
  const { open } = await freshDatabase(t, { migrations });
  const db = open({ maxConnections: 1 });
  for (let n = 0; n < 7; n++) await addOne(db, newQueue());
  await db.query('analyze cnapi_waitlist_tickets');
  await db.query('analyze cnapi_waitlist_queues');
  for (let n = 0; n < 8; n++) await repairQueues(db, 200);
  await db.query(
    `with q as (
       insert into cnapi_waitlist_queues (server_uuid, scope, id, last_place, created_at, updated_at)
         select 'many', 'vm', n::text, 1, cnapi_now(), cnapi_now() from generate_series(1, 20000) as n
         returning *
     )
     insert into cnapi_waitlist_tickets (uuid, queue, place, server_uuid, scope, id, extra, expires_at, status, created_at,
         updated_at, active_at)
       select gen_random_uuid(), key, 1, server_uuid, scope, id, '{}', cnapi_now() + interval '1 hour', 'active',
           cnapi_now(), cnapi_now(), cnapi_now()
         from q`,
  );
  t.same(await repairQueues(db, 200), { queues: [], moved: [] });
});

/** A queue with a holder and the maximum number of waiting tickets. Returns the holder. */
async function fill(database: Queryable, queue: Place, expiresIn: string): Promise<string> {
  const holder = await addOne(database, queue);
  await database.query(
    `with q as (
       update cnapi_waitlist_queues set last_place = $2::int + 1 where id = $1::text returning *
     )
     insert into cnapi_waitlist_tickets (uuid, queue, place, server_uuid, scope, id, extra, expires_at, status, created_at,
         updated_at)
       select gen_random_uuid(), key, place, server_uuid, scope, id, '{}', cnapi_now() + $3::interval, 'queued',
           cnapi_now(), cnapi_now()
         from q, generate_series(2, $2::int + 1) as place`,
    [queue.id, WAITING, expiresIn],
  );
  return holder;
}
