/**
 * Postgres may plan with statistics from a time when there was one small push job. What each
 * statement of a large one reads must still grow with what it is asked for, and not with its square.
 */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { claimDuties } from '../../../lib/control/duty/duty-store.ts';
import { requestAbortOfNodes } from '../../../lib/control/push/change-store.ts';
import { abortJob, abortNodes, advanceJob, endJob, startNodes } from '../../../lib/control/push/coordinator-store.ts';
import { endRehab, readErrands, storeVotes } from '../../../lib/control/push/courier-store.ts';
import { createPushJob, PUSH_DUTY } from '../../../lib/control/push/push-store.ts';
import { migrations } from '../../../lib/control/schema.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';
import { newPushJob, votesOf } from '../../interleavings/push-statements.ts';
import { freshDatabase } from '../../support/postgres.ts';

const NODES = 2_000;
const VOTES = 50;
/** Rows that a statement may read for each node that it is asked for. */
const READS_PER_NODE = 25;
const TABLES = ['cnapi_push_jobs', 'cnapi_push_nodes', 'cnapi_push_busy', 'cnapi_tasks', 'cnapi_roster_authority'];

t.test('with statistics of one node no statement of a large job reads more than its share', async (t) => {
  const { open } = await freshDatabase(t, { migrations });
  // The test counts rows, not seconds. Plans belong to a connection.
  const database = open({ maxConnections: 1, statementTimeoutMs: 120_000 });
  for (const table of TABLES) await database.query(`alter table ${table} set (autovacuum_enabled = off)`);
  const run = randomUUID();
  await database.query(
    `insert into cnapi_instances (run, cnapi_uuid, url, host, port, pid, version)
       values ($1::uuid, gen_random_uuid(), 'http://127.0.0.1:1', '127.0.0.1', 1, 1, '0')`,
    [run],
  );
  const seats = Array.from({ length: NODES }, () => ({ serverUuid: randomUUID(), incarnation: randomUUID() }));
  await database.query(
    `insert into cnapi_roster_authority (server_uuid, run, epoch, status, reason, since, incarnation)
       select s, $2::uuid, 1, 'running', 'connected', cnapi_now(), i from unnest($1::uuid[], $3::uuid[]) as u (s, i)`,
    [seats.map(({ serverUuid }) => serverUuid), run, seats.map(({ incarnation }) => incarnation)],
  );
  const created = async (count: number) => {
    await createPushJob(database, newPushJob(seats.slice(0, count).map(({ serverUuid }) => serverUuid)));
    const [duty] = await claimDuties(database, run, { kinds: [PUSH_DUTY], most: 1 });
    if (duty === undefined) throw new Error('the duty cannot be claimed');
    return duty;
  };
  const ids = (count: number) => Array.from({ length: count }, () => randomUUID());
  const aborting = { ending: 'aborted', soft: false, reason: 'asked', most: NODES } as const;

  const small = await created(1);
  await storeVotes(database, votesOf(small.id, { seats: seats.slice(0, 1) }, true));
  await startNodes(database, small, { ids: ids(1), timeoutMs: 1_000 });
  for (const table of TABLES) await database.query(`vacuum analyze ${table}`);
  await endJob(database, small, 'aborted');
  await database.query('delete from cnapi_push_busy');

  async function check(name: string, nodes: number, work: (connection: Queryable) => Promise<unknown>) {
    const reads = await database.transaction(async (connection) => {
      const read = async () => {
        const { rows } = await connection.query<{ reads: number }>(
          `select sum(seq_tup_read + idx_tup_fetch)::int as reads from pg_stat_xact_user_tables
             where relname = any ($1::text[])`,
          [TABLES],
        );
        return rows[0]?.reads ?? 0;
      };
      const before = await read();
      await work(connection);
      return (await read()) - before;
    });
    t.ok(reads <= READS_PER_NODE * nodes, `${name}: ${reads} rows for ${nodes} nodes`);
  }

  const large = await created(NODES);
  await check('errands', NODES, (connection) => readErrands(connection, { jobs: [large.id], most: NODES }));
  for (let first = 0; first < NODES; first += VOTES) {
    const votes = votesOf(large.id, { seats: seats.slice(first, first + VOTES) }, true);
    if (first % 400 !== 0) await storeVotes(database, votes);
    else await check(`votes from the ${first}th`, VOTES, (connection) => storeVotes(connection, votes));
  }
  await check('a round', NODES, (connection) => advanceJob(connection, large));
  await check('a start', NODES, (connection) => startNodes(connection, large, { ids: ids(NODES), timeoutMs: 60_000 }));
  t.equal((await advanceJob(database, large)).started, NODES);
  await check('a round of started nodes', NODES, (connection) => advanceJob(connection, large));
  const nodes = seats.slice(0, VOTES).map(({ serverUuid }) => serverUuid);
  await check('a request to abort nodes', VOTES, (connection) =>
    requestAbortOfNodes(connection, large.id, { nodes, how: 'hard' }),
  );
  await requestAbortOfNodes(database, large.id, { nodes, how: 'hard' });
  await check('an abort of nodes', NODES, (connection) => abortNodes(connection, large, NODES));
  await check('an abort', NODES, (connection) => abortJob(connection, large, aborting));
  await check('the end', NODES, (connection) => endJob(connection, large, 'aborted'));
  const releases = seats.slice(0, VOTES).map(({ serverUuid }) => ({ job: large.id, serverUuid }));
  await check('the end of rehab', VOTES, (connection) => endRehab(connection, releases));
});
