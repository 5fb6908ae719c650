import t, { type Test } from 'tap';
import { listQueues, readQueueTimes } from '../../../lib/control/waitlist/ticket-list-store.ts';
import { releaseTicket } from '../../../lib/control/waitlist/ticket-store.ts';
import type { Database } from '../../../lib/platform/postgres/database.ts';
import { matchLists } from '../../support/match-lists.ts';
import { freshPglite } from '../../support/pglite.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { addOne, addSome, complaints, migrations, newQueue } from './support/waitlist-database.ts';

const databases = {
  Postgres: async (t: Test): Promise<Database> => (await freshDatabase(t, { migrations })).database,
  PGlite: (t: Test): Promise<Database> => freshPglite(t, { migrations }),
};

for (const [kind, fresh] of Object.entries(databases)) t.test(`the queues in ${kind}`, (t) => theQueues(t, fresh));

async function theQueues(t: Test, fresh: (t: Test) => Promise<Database>): Promise<void> {
  const db = await fresh(t);
  /** After each of these all of I4 holds. */
  const check = (name: string, body: (t: Test) => Promise<void>) =>
    t.test(name, async (t) => {
      await body(t);
      t.same(await complaints(db), []);
    });

  check('a ticket queues until its turn, and its time as the holder begins then', async (t) => {
    await db.query('truncate cnapi_waitlist_queues, cnapi_waitlist_tickets cascade');
    const uuids = await addSome(db, newQueue(), 3);
    await db.query(
      `update cnapi_waitlist_tickets set created_at = created_at - interval '1 hour' where status = 'queued'`,
    );
    await releaseTicket(db, uuids[0] ?? '');
    const times = await readQueueTimes(db, uuids);
    t.equal(times.length, 1, 'neither the first, which never queued, nor the last, which still does');
    t.ok(Number(times[0]) >= 3_600 && Number(times[0]) < 7_200, `${times[0]} s`);
    const [{ holder, active_ms: activeMs } = {}] = await listQueues(db, { limit: 1, offset: 0 });
    t.equal(holder, uuids[1]);
    t.ok(activeMs !== null && Number(activeMs) < 3_600_000, `${activeMs} ms`);
  });

  check('queues are listed by name with holder, depth and ages while they have a holder', async (t) => {
    await db.query('truncate cnapi_waitlist_queues, cnapi_waitlist_tickets cascade');
    const [a, b, c] = [newQueue({ serverUuid: 'a' }), newQueue({ serverUuid: 'b' }), newQueue({ serverUuid: 'c' })];
    await addSome(db, c, 1);
    const holder = await addOne(db, b, {
      action: 'start',
      reqId: 'r2',
      actor: 'deployer',
      expiry: { atMs: Date.parse('3000'), text: '3000' },
    });
    await addSome(db, b, 2);
    const [brief = ''] = await addSome(db, a, 1);
    await releaseTicket(db, brief);
    await db.query(
      `update cnapi_waitlist_tickets
         set active_at = active_at - interval '1 minute', created_at = created_at - interval '1 hour'
         where status in ('active', 'queued')`,
    );
    const rows = await listQueues(db, { limit: 10, offset: 0 });
    matchLists(t, rows, [
      {
        server_uuid: 'b',
        scope: 'vm',
        id: b.id,
        waiting: 2,
        holder,
        action: 'start',
        reqid: 'r2',
        actor: 'deployer',
        expires_text: '3000',
      },
      { server_uuid: 'c', waiting: 0, oldest_waiting_ms: null },
    ]);
    t.equal(rows.length, 2);
    const ages = [Number(rows[0]?.active_ms), Number(rows[0]?.oldest_waiting_ms)] as const;
    t.ok(ages[0] >= 60_000 && ages[0] < 3_600_000 && ages[1] >= 3_600_000, `${ages}`);
    matchLists(t, await listQueues(db, { limit: 1, offset: 1 }), [{ server_uuid: 'c' }]);
  });
}
