/**
 * After a `vacuum` that found no unfinished tasks, Postgres assumes one row in each index of
 * unfinished tasks. Then a burst arrives: what each statement reads must grow with what it is asked
 * for, and not with its square.
 */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import {
  claimPosts,
  endPosts,
  findLostPosts,
  readDeadPostingRuns,
  readWaitingServers,
} from '../../../lib/control/legacy/post-store.ts';
import { sweepTasks, takeOverdue } from '../../../lib/control/tasks/deadlines/deadline-store.ts';
import {
  type ClaimedAttempt,
  claimTasks,
  readBusyServers,
  readInheritedTasks,
  readServersAtWork,
  resendTasks,
  settleInventory,
} from '../../../lib/control/tasks/dispatch/claim-store.ts';
import { recordReports } from '../../../lib/control/tasks/reports/report-store.ts';
import { createTask } from '../../../lib/control/tasks/store/task-store.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { migrations, newTask, overdueMs, resendMs } from './support/task-database.ts';

const SERVERS = 400;
const ENDED = 100_000;
/** Rows of tasks that a statement may read per server. Reading the square would be 400. */
const READS_PER_SERVER = 25;

t.test('with statistics from before a burst no statement reads more than its share', async (t) => {
  const { open } = await freshDatabase(t, { migrations });
  // The test counts rows, not seconds.
  const database = open({ statementTimeoutMs: 120_000 });
  const run = randomUUID();
  const sessions = Array.from({ length: SERVERS }, () => ({
    serverUuid: randomUUID(),
    epoch: 1,
    journalId: randomUUID(),
  }));
  const servers = sessions.map(({ serverUuid }) => serverUuid);
  await database.query(
    `insert into cnapi_instances (run, cnapi_uuid, url, host, port, pid, version)
       values ($1::uuid, gen_random_uuid(), 'http://127.0.0.1:1', '127.0.0.1', 1, 1, '0')`,
    [run],
  );
  await database.query(
    `insert into cnapi_roster_authority (server_uuid, run, epoch, status, reason, since, journal_id)
       select s, $2::uuid, 1, 'running', 'connected', cnapi_now(), j from unnest($1::uuid[], $3::uuid[]) as u (s, j)`,
    [servers, run, sessions.map(({ journalId }) => journalId)],
  );
  await database.query(
    `insert into cnapi_tasks (id, server_uuid, name, params, timeout_ms, idempotent, request_hash, created_at, queued_at,
         state, outcome, attempt, ended_at)
       select gen_random_uuid(), ($1::uuid[])[1 + g % $2::int], 'nop', '{}', 3600000, false, 'h', cnapi_now(), cnapi_now(),
         'ended', 'complete', 1, cnapi_now() from generate_series(1, $3::int) g`,
    [servers, SERVERS, ENDED],
  );
  await database.query('vacuum analyze cnapi_tasks');
  // Nothing may analyze the table during the test.
  await database.query('alter table cnapi_tasks set (autovacuum_enabled = off)');

  /** The number of rows of tasks read by `work`. */
  async function readsOf(work: (connection: Queryable) => Promise<unknown>): Promise<number> {
    return database.transaction(async (connection) => {
      const read = async () => {
        const { rows } = await connection.query<{ reads: number }>(
          `select (seq_tup_read + idx_tup_fetch)::int as reads from pg_stat_xact_user_tables where relname = 'cnapi_tasks'`,
        );
        return rows[0]?.reads ?? 0;
      };
      const before = await read();
      await work(connection);
      return (await read()) - before;
    });
  }
  const check = async (name: string, work: (connection: Queryable) => Promise<unknown>, servers = SERVERS) => {
    const reads = await readsOf(work);
    t.ok(reads <= READS_PER_SERVER * servers, `${name}: ${reads} rows for ${servers} servers`);
  };
  const half = sessions.slice(0, SERVERS / 2);

  for (const serverUuid of servers) await createTask(database, newTask(serverUuid));
  await check('create', (connection) => createTask(connection, newTask(servers[0] as string)), 1);
  await check('servers with work', (connection) => readBusyServers(connection, run));
  await check('claim', (connection) => claimTasks(connection, run, { sessions: half, resendMs }));
  await check('a claim that finds nothing', (connection) => claimTasks(connection, run, { sessions: half, resendMs }));
  await check('claim of the rest', (connection) => claimTasks(connection, run, { sessions, resendMs }));
  await check('send again', (connection) => resendTasks(connection, sessions, 0));
  await check('overdue tasks', (connection) => takeOverdue(connection, sessions, { overdueMs, resendMs }));
  const { rows: claimed } = await database.query<{ id: string; serverUuid: string; attempt: number }>(
    `select id, server_uuid as "serverUuid", attempt from cnapi_tasks where state = 'claimed' limit 10`,
  );
  const accepted = { name: 'accepted', reportedAt: '' } as const;
  await check(
    'record reports',
    (connection) =>
      recordReports(
        connection,
        claimed.map((subject) => ({ subject, report: accepted })),
      ),
    claimed.length,
  );
  await check('inherited tasks', (connection) =>
    readInheritedTasks(
      connection,
      sessions.map((one) => ({ ...one, epoch: 2 })),
      SERVERS,
    ),
  );
  await database.query('update cnapi_roster_authority set epoch = 2');
  const next = sessions.map((one) => ({ ...one, epoch: 2 }));
  const inherited = await readInheritedTasks(database, next, SERVERS);
  const settlements = inherited.map((task) => ({
    task,
    session: next.find(({ serverUuid }) => serverUuid === task.serverUuid) as (typeof next)[number],
    decision: { kind: 'goes-on', started: true } as const,
  }));
  await check('settle inventories', (connection) => settleInventory(connection, run, settlements));
  await check('servers at work', (connection) => readServersAtWork(connection, servers));
  await check('sweep', (connection) => sweepTasks(connection, { startByMs: 30_000, overdueMs }));

  await database.query('update cnapi_roster_authority set run = null where server_uuid = any ($1::uuid[])', [servers]);
  for (const serverUuid of servers) await createTask(database, newTask(serverUuid));
  await check('claim of posts', (connection) =>
    claimPosts(connection, run, { servers: servers.slice(0, 200), room: { posts: 500, bytes: 1e6 } }),
  );
  await check('servers that wait for posts', (connection) => readWaitingServers(connection, 5_000));
  await check('lost posts', (connection) => findLostPosts(connection, run, { known: [], limit: 500 }));
  await check('dead posting runs', (connection) => readDeadPostingRuns(connection));
  await check('end of posts', (connection) => endPosts(connection, [run]));
});

t.test('a connection that planned in a new zone does not read all rows for each statement', async (t) => {
  const { open } = await freshDatabase(t, { migrations });
  // Plans belong to a connection.
  const database = open({ maxConnections: 1, statementTimeoutMs: 120_000 });
  const tables = ['cnapi_tasks', 'cnapi_task_events', 'cnapi_roster_authority'];
  for (const table of tables) {
    await database.query(`alter table ${table} set (autovacuum_enabled = off)`);
    await database.query(`vacuum analyze ${table}`);
  }
  const run = randomUUID();

  /** Adds servers with one queued task each; then some of their tasks run to their ends. */
  async function liveThrough(
    count: number,
    some: number,
  ): Promise<Record<'claim' | 'reports' | 'repeated' | 'nothing', number>> {
    return database.transaction(async (connection) => {
      const sessions = Array.from({ length: count }, () => {
        return { serverUuid: randomUUID(), epoch: 1, journalId: randomUUID() };
      });
      const servers = sessions.map(({ serverUuid }) => serverUuid);
      await connection.query(
        `insert into cnapi_roster_authority (server_uuid, run, epoch, status, reason, since)
           select server, $2::uuid, 1, 'running', 'connected', cnapi_now() from unnest($1::uuid[]) as server`,
        [servers, run],
      );
      await connection.query(
        `insert into cnapi_tasks (id, server_uuid, name, params, timeout_ms, idempotent, request_hash, created_at, queued_at)
           select gen_random_uuid(), server, 'nop', '{}', 1000, false, 'h', cnapi_now(), cnapi_now()
             from unnest($1::uuid[]) as server`,
        [servers],
      );
      const readsOf = async (work: () => Promise<unknown>) => {
        const read = async () => {
          const { rows } = await connection.query<{ reads: number }>(
            `select sum(seq_tup_read + idx_tup_fetch)::int as reads from pg_stat_xact_user_tables
               where relname = any ($1::text[])`,
            [tables],
          );
          return rows[0]?.reads ?? 0;
        };
        const before = await read();
        await work();
        return (await read()) - before;
      };
      const claimSome = () => claimTasks(connection, run, { sessions: sessions.slice(0, some), resendMs });
      let given: ClaimedAttempt[] = [];
      const claim = await readsOf(async () => {
        given = (await claimSome()).claimed;
      });
      t.equal(given.length, some, `claimed ${some} of ${count}`);
      await connection.query(
        `insert into cnapi_task_events (task_id, seq, attempt, name, stored_at, data, stream, first_byte, bytes)
           select id, 1, 1, 'output', cnapi_now(), '{}', 'stdout', 0, 1 from cnapi_tasks where server_uuid = any ($1::uuid[])
             and state = 'queued'`,
        [servers],
      );
      const output = { name: 'output', reportedAt: '', stream: 'stdout', offset: 0, text: 'a', bytes: 1 } as const;
      const repeated = given.map((subject) => ({ subject, report: output, isRepeated: true }));
      const reports = given.flatMap(({ id, attempt, serverUuid }) => {
        const subject = { id, attempt, serverUuid };
        return [
          { subject, report: { name: 'started', reportedAt: '' } as const },
          { subject, report: { name: 'complete', reportedAt: '', resultJson: undefined } as const },
        ];
      });
      return {
        claim,
        repeated: await readsOf(() => recordReports(connection, repeated)),
        reports: await readsOf(() => recordReports(connection, reports)),
        nothing: await readsOf(claimSome),
      };
    });
  }
  // After some calls a connection keeps one plan for all of them.
  for (let call = 0; call < 10; call += 1) await liveThrough(1, 1);
  for (const [what, reads] of Object.entries(await liveThrough(2_000, 10)))
    t.ok(reads <= READS_PER_SERVER * 10, `${what}: ${reads} rows for 10 servers of 2,000`);
});
