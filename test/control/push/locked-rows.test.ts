/** Somebody holds one row of a job: its other nodes go on (law 9). */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import { changePushJob, requestAbortOfNodes } from '../../../lib/control/push/change-store.ts';
import {
  abortJob,
  abortNodes,
  advanceJob,
  changeTimeouts,
  closeVoting,
  endJob,
  startNodes,
} from '../../../lib/control/push/coordinator/coordinator-store.ts';
import { storeVotes } from '../../../lib/control/push/messenger/messenger-store.ts';
import type { NewPushJob } from '../../../lib/control/push/push-store.ts';
import { beginVoting } from '../../../lib/control/push/tickets/ticket-store.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';
import { votesOf } from '../../interleavings/push-statements.ts';
import { claimedJob, lockOf, nodeStates, seatedDatabase, startAll } from './job-rows.ts';

const NODES = 5;
/** How long the job has asked its agents when its voting timeout is over. */
const TIME_OVER = 60_000;
const HARD = { ending: 'aborted', soft: false, reason: 'asked', limit: NODES } as const;

/** A job of five servers that nobody has asked. */
async function asked(t: Test, fields: Partial<NewPushJob> = {}) {
  const { database, open, run, seats, first } = await seatedDatabase(t, NODES);
  const duty = await claimedJob(database, run, { seats, fields });
  const other = open({ maxConnections: 1, lockTimeoutMs: 100 });
  /**
   * Does the work while another session holds rows, and fails at once if it has to wait for them.
   */
  const whileHeld = <Result>(sql: string, work: (free: Queryable) => Promise<Result>): Promise<Result> =>
    database.transaction(async (holder) => {
      await holder.query(sql);
      return work(other);
    });
  return { database, duty, seats, whileHeld, first: first.serverUuid, states: () => nodeStates(database) };
}

/** A job that all servers are ready for. */
async function ready(t: Test) {
  const zone = await asked(t);
  await storeVotes(zone.database, votesOf(zone.duty.id, zone, true));
  return zone;
}

/** A job whose commands run on all servers. */
async function running(t: Test, fields: Partial<NewPushJob> = {}) {
  const zone = await asked(t, fields);
  await startAll(zone.database, zone.duty, zone.seats);
  return zone;
}

t.test('votes are stored, but for those of servers whose rows another session is deleting', async (t) => {
  const { database, duty, seats, first, states, whileHeld } = await asked(t);
  await database.query(
    'insert into cnapi_push_busy (server_uuid, job, rehab_since) values ($1::uuid, $2::uuid, cnapi_now())',
    [first, randomUUID()],
  );
  const deletion = `delete from cnapi_push_busy where server_uuid = '${first}'`;
  const vote = (on: Queryable) => storeVotes(on, votesOf(duty.id, { seats }, true));
  t.same(await whileHeld(deletion, vote), ['locked', 'stored', 'stored', 'stored', 'stored']);
  t.same(await states(), { new: 1, ready: NODES - 1 });
  t.same(await vote(database), Array(NODES).fill('stored'));
  t.same(await states(), { ready: NODES });
});

t.test('votes are withdrawn, but for those of servers whose rows somebody holds', async (t) => {
  const { database, duty, seats, first, states, whileHeld } = await ready(t);
  const withdraw = (on: Queryable) => storeVotes(on, votesOf(duty.id, { seats }, false));
  const results = await whileHeld(lockOf('cnapi_push_busy', first), withdraw);
  t.same(results, ['locked', 'stored', 'stored', 'stored', 'stored']);
  t.same(await states(), { ready: 1, unavailable: NODES - 1 });
  await withdraw(database);
  t.same(await states(), { unavailable: NODES });
});

t.test('an abort cancels the tasks that nobody holds, and later the others', async (t) => {
  const { duty, first, database, whileHeld } = await running(t);
  const told = await whileHeld(lockOf('cnapi_tasks', first), (free) => abortJob(free, duty, HARD));
  t.equal(told.length, NODES - 1);
  t.equal((await advanceJob(database, duty)).toCancel, 1);
  t.same(
    (await abortJob(database, duty, HARD)).map(({ serverUuid }) => serverUuid),
    [first],
  );
});

t.test('a start leaves out a node that somebody holds, and the next one starts it', async (t) => {
  const { duty, first, database, whileHeld } = await ready(t);
  const start = async (on: Queryable) => {
    const ids = Array.from({ length: NODES }, () => randomUUID());
    return (await startNodes(on, duty, { ids, runMs: 0 })).map(({ serverUuid }) => serverUuid);
  };
  const started = await whileHeld(lockOf('cnapi_push_nodes', first), start);
  t.equal(started.length, NODES - 1);
  t.notOk(started.includes(first));
  t.same(await start(database), [first]);
});

t.test('the end of the voting leaves out a node that somebody holds, for the next time', async (t) => {
  const { duty, first, database, states, whileHeld } = await asked(t);
  await whileHeld(lockOf('cnapi_push_nodes', first), (free) => closeVoting(free, duty, TIME_OVER));
  t.same(await states(), { new: 1, unavailable: NODES - 1 });
  await closeVoting(database, duty, TIME_OVER);
  t.same(await states(), { unavailable: NODES });
});

t.test('an abort of nodes leaves out those that somebody holds, and the next one aborts them', async (t) => {
  const { duty, first, seats, database, states, whileHeld } = await ready(t);
  const nodes = seats.map(({ serverUuid }) => serverUuid);
  await requestAbortOfNodes(database, duty.id, { nodes, how: 'hard' });
  for (const table of ['cnapi_push_nodes', 'cnapi_push_busy'] as const) {
    await whileHeld(lockOf(table, first), (free) => abortNodes(free, duty, NODES));
    t.same(await states(), { ready: 1, was_ready: NODES - 1 }, table);
    t.equal((await advanceJob(database, duty)).toAbort, 1);
  }
  await abortNodes(database, duty, NODES);
  t.same(await states(), { was_ready: NODES });
});

t.test('an abort of nodes cancels the tasks that nobody holds, and later the others', async (t) => {
  const { duty, first, seats, database, whileHeld } = await running(t);
  const nodes = seats.map(({ serverUuid }) => serverUuid);
  await requestAbortOfNodes(database, duty.id, { nodes, how: 'hard' });
  const told = await whileHeld(lockOf('cnapi_tasks', first), (free) => abortNodes(free, duty, NODES));
  t.equal(told.length, NODES - 1);
  t.equal((await advanceJob(database, duty)).toAbort, 1);
  t.same(
    (await abortNodes(database, duty, NODES)).map(({ serverUuid }) => serverUuid),
    [first],
  );
});

t.test('nodes that somebody holds do not count for what a step does at most', async (t) => {
  const { duty, seats, states, whileHeld } = await running(t);
  const held = seats.slice(0, NODES - 2).map(({ serverUuid }) => `'${serverUuid}'`);
  const sql = `select 1 from cnapi_push_nodes where server_uuid in (${held}) for update`;
  const told = await whileHeld(sql, (free) => abortJob(free, duty, { ...HARD, limit: 2 }));
  t.same(
    told.map(({ serverUuid }) => serverUuid).sort(),
    seats.slice(NODES - 2).map(({ serverUuid }) => serverUuid),
    'those behind the ones that are held',
  );
  t.same(await states(), { running: NODES });
});

/**
 * What a step changes, of five running nodes, while another session holds rows of the first three.
 */
const beyond: Record<
  string,
  { held: 'cnapi_push_busy' | 'cnapi_tasks'; before: string; step: string; states: object }
> = {
  'gives nodes their ends': {
    held: 'cnapi_push_busy',
    before: `update cnapi_tasks set state = 'ended', outcome = 'complete', exit_code = 0`,
    step: `select cnapi_settle_push_nodes($1::uuid, null, 2, '{}')`,
    states: { running: 3, succeeded: 2 },
  },
  'ejects nodes': {
    held: 'cnapi_push_busy',
    before: `update cnapi_roster_authority set status = 'unknown'`,
    step: `select cnapi_eject_push_nodes($1::uuid, 2, '{}', '{}', '{}')`,
    states: { running: 3, crashed: 2 },
  },
  'ejects nodes, and cancels their tasks': {
    held: 'cnapi_tasks',
    before: `update cnapi_roster_authority set status = 'unknown'`,
    step: `select cnapi_eject_push_nodes($1::uuid, 2, '{}', '{}', '{}')`,
    states: { running: 3, crashed: 2 },
  },
  'releases nodes': {
    held: 'cnapi_push_busy',
    before: `update cnapi_push_nodes set state = 'ready', task = null`,
    step: `select cnapi_release_push_nodes($1::uuid, false, 'node-aborted', false, 2)`,
    states: { ready: 3, was_ready: 2 },
  },
  'gives nodes up': {
    held: 'cnapi_tasks',
    before: `update cnapi_push_jobs set state = 'aborting', ending = 'aborted'`,
    step: `select cnapi_end_push_job($1::uuid, run, generation, 'aborted', 2, '{}', '{}') from cnapi_duties where id = $1::uuid`,
    states: { running: 3, aborted: 2 },
  },
};

for (const [name, { held, before, step, states }] of Object.entries(beyond))
  t.test(`what ${name} goes beyond those of which somebody holds rows in ${held}`, async (t) => {
    const zone = await running(t);
    await zone.database.query(before);
    const first = zone.seats.slice(0, 3).map(({ serverUuid }) => `'${serverUuid}'`);
    await zone.whileHeld(`select 1 from ${held} where server_uuid in (${first}) for update`, (free) =>
      free.query(step, [zone.duty.id]),
    );
    t.same(await zone.states(), states);
  });

t.test('cancels and changed timeouts go beyond the tasks that somebody holds', async (t) => {
  const { database, duty, seats, whileHeld } = await running(t);
  const first = seats.slice(0, 3).map(({ serverUuid }) => `'${serverUuid}'`);
  const others = seats.slice(3).map(({ serverUuid }) => serverUuid);
  const held = `select 1 from cnapi_tasks where server_uuid in (${first}) for update`;
  await changePushJob(database, duty.id, { changes: { run_timeout_ms: 90_000 } });
  await whileHeld(held, (free) => changeTimeouts(free, duty, 2));
  const { rows } = await database.query<{ server_uuid: string }>(
    `select server_uuid from cnapi_tasks where timeout_ms = 90_000 order by server_uuid`,
  );
  t.same(
    rows.map(({ server_uuid }) => server_uuid),
    others,
  );
  const told = await whileHeld(held, (free) => abortJob(free, duty, { ...HARD, limit: 2 }));
  t.same(told.map(({ serverUuid }) => serverUuid).sort(), others);
});

t.test('a round gives the nodes that nobody holds their ends', async (t) => {
  const { database, duty, first, states, whileHeld } = await running(t);
  await database.query(`update cnapi_tasks set state = 'ended', outcome = 'complete', exit_code = 0`);
  for (const table of ['cnapi_push_nodes', 'cnapi_push_busy'] as const) {
    await whileHeld(lockOf(table, first), (free) => advanceJob(free, duty));
    t.same(await states(), { running: 1, succeeded: NODES - 1 });
  }
  await advanceJob(database, duty);
  t.same(await states(), { succeeded: NODES });
});

t.test('a round ejects the nodes whose agents are gone, but for those whose tasks are held', async (t) => {
  const { database, duty, first, states, whileHeld } = await running(t);
  await database.query(`update cnapi_roster_authority set status = 'unknown'`);
  await whileHeld(lockOf('cnapi_tasks', first), (free) => advanceJob(free, duty));
  t.same(await states(), { crashed: NODES - 1, running: 1 });
  await advanceJob(database, duty);
  t.same(await states(), { crashed: NODES });
  const { rows } = await database.query('select 1 from cnapi_tasks where cancel_requested_at is null');
  t.same(rows, [], 'each of their tasks was cancelled');
});

for (const table of ['cnapi_tasks', 'cnapi_push_nodes'] as const)
  t.test(`a job ends when each node was given up, also one that was held in ${table}`, async (t) => {
    const { database, duty, first, states, whileHeld } = await running(t);
    await abortJob(database, duty, HARD);
    t.equal(await whileHeld(lockOf(table, first), (free) => endJob(free, duty, 'aborted')), 1);
    t.same(await states(), { aborted: NODES - 1, running: 1 });
    t.equal((await advanceJob(database, duty)).job.state, 'aborting');
    t.equal(await endJob(database, duty, 'aborted'), 0);
    t.equal((await advanceJob(database, duty)).job.state, 'ended');
  });

t.test('a changed run timeout reaches the commands of nodes that nobody holds, and later the others', async (t) => {
  const { database, duty, first, whileHeld } = await running(t);
  await changePushJob(database, duty.id, { changes: { run_timeout_ms: 90_000 } });
  const change = (on: Queryable) => changeTimeouts(on, duty, NODES);
  await whileHeld(lockOf('cnapi_push_nodes', first), change);
  t.equal((await advanceJob(database, duty)).outdatedTimeouts, 1);
  await change(database);
  t.equal((await advanceJob(database, duty)).outdatedTimeouts, 0);
});

t.test('the feed of an organization tells of the nodes that nobody holds, and later of the others', async (t) => {
  const { database, duty, first, states, whileHeld } = await running(t, { organization: 'acme' });
  const held = lockOf('cnapi_push_nodes', first);
  const told = async () => {
    const { rows } = await database.query<{ name: string; count: number }>(
      `select name, sum(coalesce(cardinality(nodes), 1))::int as count from cnapi_push_feed
         where name in ('run_complete', 'job_complete') group by name`,
    );
    return Object.fromEntries(rows.map(({ name, count }) => [name, count]));
  };
  await database.query(`update cnapi_tasks set state = 'ended', outcome = 'complete', exit_code = 0`);
  await whileHeld(held, (free) => advanceJob(free, duty));
  t.same(await states(), { running: 1, succeeded: NODES - 1 });
  t.same(await told(), { run_complete: NODES - 1 });
  // The node gets its end, which the feed has not told yet.
  await advanceJob(database, duty);
  await database.query(`update cnapi_push_nodes set feed_state = 'running' where server_uuid = '${first}'`);
  await database.query(`delete from cnapi_push_feed where last = (select max(last) from cnapi_push_feed)`);
  t.equal(await whileHeld(held, (free) => endJob(free, duty, 'complete')), 1, 'the job has not ended');
  t.same(await told(), { run_complete: NODES - 1 });
  t.equal(await endJob(database, duty, 'complete'), 0);
  t.same(await told(), { run_complete: NODES, job_complete: 1 });
});

t.test('a job with a ticket begins to ask, although somebody holds a node', async (t) => {
  const ticket = { serverUuid: 'default', scope: 'a', id: 'b', expiresInSeconds: 60, timeoutMs: 60_000 };
  const { database, duty, first, whileHeld } = await asked(t, { ticket });
  await database.query(`update cnapi_roster_authority set status = 'unknown'`);
  await whileHeld(lockOf('cnapi_push_nodes', first), (free) => beginVoting(free, duty));
  t.match(await advanceJob(database, duty), {
    job: { state: 'voting' },
    nodeCounts: { unavailable: NODES - 1, new: 1 },
  });
});
