/**
 * Postgres may plan with statistics from a time when there was one small push job. What each
 * statement of a large one reads must still grow with what it is asked for, and not with its
 * square.
 */
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import t from 'tap';
import { changePushJob, requestAbortOfNodes } from '../../../lib/control/push/change-store.ts';
import {
  abortJob,
  abortNodes,
  advanceJob,
  changeTimeouts,
  endJob,
  startNodes,
} from '../../../lib/control/push/coordinator/coordinator-store.ts';
import { endRehab, readOrders, readVoters, storeVotes } from '../../../lib/control/push/messenger/messenger-store.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';
import { votesOf } from '../../interleavings/push-statements.ts';
import { claimedJob, rowsRead, seatedDatabase } from './job-rows.ts';

const NODES = 2_000;
const VOTES = 50;
/** Rows that a statement may read for each node that it is asked for. */
const READS_PER_NODE = 25;
const TABLES = ['cnapi_push_jobs', 'cnapi_push_nodes', 'cnapi_push_busy', 'cnapi_tasks', 'cnapi_roster_authority'];

t.test('with statistics of one node no statement of a large job reads more than its share', async (t) => {
  const { open, run, seats } = await seatedDatabase(t, NODES);
  // The test counts rows, not seconds. Plans belong to a connection.
  const database = open({ maxConnections: 1, statementTimeoutMs: 120_000 });
  for (const table of TABLES) await database.query(`alter table ${table} set (autovacuum_enabled = off)`);
  const created = (count: number) => claimedJob(database, run, { seats: seats.slice(0, count) });
  const ids = (count: number) => Array.from({ length: count }, () => randomUUID());

  const small = await created(1);
  await storeVotes(database, votesOf(small.id, { seats: seats.slice(0, 1) }, true));
  await startNodes(database, small, { ids: ids(1), runMs: 0 });
  for (const table of TABLES) await database.query(`vacuum analyze ${table}`);
  await endJob(database, small, 'aborted');
  await database.query('delete from cnapi_push_busy');

  async function check(name: string, nodes: number, work: (connection: Queryable) => Promise<unknown>) {
    const reads = await database.transaction(async (connection) => {
      const before = await rowsRead(connection, TABLES);
      await work(connection);
      return (await rowsRead(connection, TABLES)) - before;
    });
    t.ok(reads <= READS_PER_NODE * nodes, `${name}: ${reads} rows for ${nodes} nodes`);
  }

  const large = await created(NODES);
  await check('voters', NODES, (connection) => readVoters(connection, { jobs: [large.id], limit: NODES }));
  for (let first = 0; first < NODES; first += VOTES) {
    const votes = votesOf(large.id, { seats: seats.slice(first, first + VOTES) }, true);
    if (first % 400 !== 0) await storeVotes(database, votes);
    else await check(`votes from the ${first}th`, VOTES, (connection) => storeVotes(connection, votes));
  }
  await check('a round', NODES, (connection) => advanceJob(connection, large));
  await check('a start', NODES, (connection) => startNodes(connection, large, { ids: ids(NODES), runMs: 0 }));
  t.equal((await advanceJob(database, large)).started, NODES);
  await check('a round of started nodes', NODES, (connection) => advanceJob(connection, large));
  await changePushJob(database, large.id, { changes: { run_timeout_ms: 90_000 } });
  await check('a round of outdated timeouts', NODES, (connection) => advanceJob(connection, large));
  await check('a change of timeouts', NODES, (connection) => changeTimeouts(connection, large, NODES));
  const timeoutsSince = [{ jobId: large.id, changes: 0 }];
  await check('orders of timeouts', NODES, (connection) =>
    readOrders(connection, { jobs: [large.id], timeoutsSince, limit: NODES }),
  );
  const nodes = seats.slice(0, VOTES).map(({ serverUuid }) => serverUuid);
  await check('a request to abort nodes', VOTES, (connection) =>
    requestAbortOfNodes(connection, large.id, { nodes, how: 'hard' }),
  );
  await requestAbortOfNodes(database, large.id, { nodes, how: 'hard' });
  await check('an abort of nodes', NODES, (connection) => abortNodes(connection, large, NODES));
  const aborting = { ending: 'aborted', soft: false, reason: 'asked', limit: NODES } as const;
  await check('an abort', NODES, (connection) => abortJob(connection, large, aborting));
  t.equal((await advanceJob(database, large)).job.state, 'aborting');
  await check('the end', NODES, (connection) => endJob(connection, large, 'aborted'));
  const releases = seats.slice(0, VOTES).map(({ serverUuid }) => ({ jobId: large.id, serverUuid }));
  await check('the end of rehab', VOTES, (connection) => endRehab(connection, releases));

  await database.query('delete from cnapi_push_busy');
  const ending = await created(NODES);
  for (let first = 0; first < NODES; first += 500)
    await storeVotes(database, votesOf(ending.id, { seats: seats.slice(first, first + 500) }, true));
  await startNodes(database, ending, { ids: ids(NODES), runMs: 0 });
  await database.query(
    `update cnapi_tasks set state = 'ended', outcome = 'complete', exit_code = 0
       where id in (select task from cnapi_push_nodes where job = $1::uuid limit $2::int)`,
    [ending.id, NODES / 2],
  );
  await database.query('update cnapi_roster_authority set incarnation = gen_random_uuid()');
  await check('a round of ended commands and of agents that are gone', NODES, (connection) =>
    advanceJob(connection, ending),
  );
});

t.test('with statistics from before the votes a round takes what it takes with fresh ones', async (t) => {
  const { open, run, seats } = await seatedDatabase(t, 10 * NODES);
  const created = open({ maxConnections: 1, statementTimeoutMs: 120_000 });
  for (const table of TABLES) await created.query(`alter table ${table} set (autovacuum_enabled = off)`);
  const duty = await claimedJob(created, run, { seats });
  for (const table of TABLES) await created.query(`analyze ${table}`);
  for (let first = 0; first < NODES; first += 500)
    await storeVotes(created, votesOf(duty.id, { seats: seats.slice(first, first + 500) }, true));
  // Rescans of a function read no rows, so CPU time is compared. Plans belong to a connection.
  const roundsMs = async () => {
    const database = open({ maxConnections: 1, statementTimeoutMs: 120_000 });
    const { rows } = await database.query<{ pid: number }>('select pg_backend_pid() as pid');
    const before = cpuMsOf(rows[0]?.pid ?? 0);
    for (let round = 0; round < 3; round += 1) await advanceJob(database, duty);
    return cpuMsOf(rows[0]?.pid ?? 0) - before;
  };
  const outdated = await roundsMs();
  for (const table of TABLES) await created.query(`analyze ${table}`);
  const fresh = await roundsMs();
  t.ok(outdated <= 5 * fresh + 100, `${outdated} ms, and ${fresh} ms with fresh statistics`);
});

/** CPU time of a process of this machine. */
function cpuMsOf(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
  return (Number(fields[11]) + Number(fields[12])) * 10;
}
