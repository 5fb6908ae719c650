/**
 * After a `vacuum` that found no live ticket, Postgres assumes one row in each index of live
 * tickets. Then thousands arrive: what each statement reads must grow with what it is asked for,
 * and not with the number of all live tickets.
 */
import t from 'tap';
import { listQueues } from '../../../lib/control/waitlist/ticket-list-store.ts';
import {
  deleteTicket,
  expireTickets,
  readQueueUpTo,
  releaseTicket,
  renewTicket,
  repairQueues,
} from '../../../lib/control/waitlist/ticket-store.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { add, addOne, migrations, newQueue } from './support/waitlist-database.ts';

const QUEUES = 500;
const ENDED = 50_000;
/** Rows of tickets that a statement may read for each queue it is about. */
const READS_PER_QUEUE = 25;

t.test('with statistics from before many tickets no statement reads more than its share', async (t) => {
  const { open } = await freshDatabase(t, { migrations });
  // The test counts rows, not seconds.
  const database = open({ statementTimeoutMs: 120_000 });
  await database.query(
    `insert into cnapi_waitlist_tickets (uuid, queue, place, server_uuid, scope, id, extra, expires_at, status, created_at, updated_at)
       select gen_random_uuid(), -g, 1, 'server', 'vm', g::text, '{}', cnapi_now(), 'finished', cnapi_now(), cnapi_now()
         from generate_series(1, $1::int) g`,
    [ENDED],
  );
  await database.query('vacuum analyze cnapi_waitlist_tickets');
  await database.query('alter table cnapi_waitlist_tickets set (autovacuum_enabled = off)');
  const queues = Array.from({ length: QUEUES }, () => newQueue());
  const holders: string[] = [];
  for (const queue of queues) {
    holders.push(await addOne(database, queue));
    await addOne(database, queue);
  }

  const check = async (name: string, about: number, work: (connection: Queryable) => Promise<unknown>) => {
    const reads = await database.transaction(async (connection) => {
      const read = async () => {
        const { rows } = await connection.query<{ reads: number }>(
          `select (seq_tup_read + idx_tup_fetch)::int as reads from pg_stat_xact_user_tables
             where relname = 'cnapi_waitlist_tickets'`,
        );
        return rows[0]?.reads ?? 0;
      };
      const before = await read();
      await work(connection);
      return (await read()) - before;
    });
    t.ok(reads <= READS_PER_QUEUE * about, `${name}: ${reads} rows for ${about} queues`);
  };
  const [one, two, three] = holders as [string, string, string];
  const queue = queues[9] as (typeof queues)[number];
  const waiting = await addOne(database, queue);

  await check('create', 1, (connection) => add(connection, queue));
  await check('read a queue', 1, (connection) => readQueueUpTo(connection, waiting, 10));
  await check('renew', 1, (connection) => renewTicket(connection, one, { inMs: 60_000 }));
  await check('release', 1, (connection) => releaseTicket(connection, two));
  await check('delete', 1, (connection) => deleteTicket(connection, three));
  await check('list of queues', 100, (connection) => listQueues(connection, { limit: 100, offset: 0 }));
  await check('queues without a holder', QUEUES, (connection) => repairQueues(connection, 200));
  await check('expire, nothing is due', 1, (connection) => expireTickets(connection, 200));
  await database.query(`update cnapi_waitlist_tickets set expires_at = cnapi_now() - interval '1 second'
    where status = 'active'`);
  await check('expire', 200, (connection) => expireTickets(connection, 200));
});
