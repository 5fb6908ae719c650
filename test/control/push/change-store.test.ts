/** What each change of a job that goes on takes, refuses and leaves alone, on a real Postgres. */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import {
  addPushNodes,
  changePushJob,
  type PushJobChanges,
  requestAbortOfNodes,
} from '../../../lib/control/push/change-store.ts';
import {
  abortJob,
  abortNodes,
  advanceJob,
  startNodes,
} from '../../../lib/control/push/coordinator/coordinator-store.ts';
import { storeVotes } from '../../../lib/control/push/messenger/messenger-store.ts';
import type { AbortCause } from '../../../lib/control/push/push-job.ts';
import { createPushJob, listPushNodes } from '../../../lib/control/push/push-store.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';
import { newPushJob, votesOf } from '../../interleavings/push-statements.ts';
import { type AgentSeat, beginCommands, claimedJob, seatedDatabase } from './job-rows.ts';

const STATES = {
  waiting: "state = 'waiting'",
  voting: "state = 'voting'",
  running: "state = 'running'",
  aborting: "state = 'aborting', ending = 'aborted'",
  ended: "state = 'ended', outcome = 'complete'",
  'voting, to be aborted': "state = 'voting', abort_requested = 'soft'",
  'running, to be aborted': "state = 'running', abort_requested = 'hard'",
};
type State = keyof typeof STATES;
const FREE: readonly State[] = ['waiting', 'voting'];
const GOING_ON: readonly State[] = [...FREE, 'running'];

async function jobIn(database: Queryable, seats: readonly AgentSeat[], state: State): Promise<string> {
  const job = newPushJob(seats.map(({ serverUuid }) => serverUuid));
  await createPushJob(database, job);
  await database.query(`update cnapi_push_jobs set ${STATES[state]} where id = $1::uuid`, [job.id]);
  return job.id;
}

const rowOf = async (database: Queryable, job: string) =>
  (await database.query<Record<string, unknown>>('select * from cnapi_push_jobs where id = $1::uuid', [job])).rows[0];

/** Changes of a job with three nodes, the states that accept the change, and the row afterwards. */
const changes: readonly [PushJobChanges, readonly State[], Record<string, unknown>][] = [
  [{ quorum: 2 }, FREE, { quorum: 2, quorum_percent: null }],
  [{ quorum: 3 }, FREE, { quorum: 3, quorum_percent: null }],
  [{ quorum: 4 }, [], {}],
  [{ quorum: { percent: 50 } }, FREE, { quorum: 2, quorum_percent: 50 }],
  [{ concurrency: 1 }, GOING_ON, { concurrency: 1, quorum: 3, quorum_percent: 100 }],
  [{ start_rate: 0.5 }, GOING_ON, { start_rate: 0.5 }],
  [{ max_failures: 0 }, GOING_ON, { max_failures: 0 }],
  [{ voting_timeout_ms: 7 }, GOING_ON, { voting_timeout_ms: 7, run_timeout_ms: 60_000 }],
  [{ run_timeout_ms: 7 }, GOING_ON, { run_timeout_ms: 7, voting_timeout_ms: 60_000 }],
  [{ concurrency: 1, quorum: 4 }, [], {}],
];

t.test('a job takes a change of its limits in these states, and in no other', async (t) => {
  const { database, seats } = await seatedDatabase(t, 3);
  for (const [change, takenIn, result] of changes)
    for (const state of Object.keys(STATES) as State[]) {
      const about = `${JSON.stringify(change)}, ${state}`;
      const job = await jobIn(database, seats, state);
      const before = await rowOf(database, job);
      const isTaken = takenIn.includes(state);
      t.equal(await changePushJob(database, job, { changes: change }), isTaken, about);
      t.same(await rowOf(database, job), isTaken ? { ...before, ...result } : before, about);
    }
});

t.test('null takes a limit away, and what is not named stays', async (t) => {
  const { database, seats } = await seatedDatabase(t, 1);
  const job = await jobIn(database, seats, 'running');
  const limits = { concurrency: 1, start_rate: 2, max_failures: 3 };
  await changePushJob(database, job, { changes: limits });
  for (const name of Object.keys(limits)) {
    const before = await rowOf(database, job);
    await changePushJob(database, job, { changes: { [name]: null } });
    t.same(await rowOf(database, job), { ...before, [name]: null }, name);
  }
});

const added = (database: Queryable, job: string, servers: readonly string[], limit = 10) =>
  addPushNodes(database, job, { nodes: servers.map((serverUuid) => ({ serverUuid, name: 'new' })), limit });

async function seatsAnd(t: Test, others: number) {
  const { database, seats, run } = await seatedDatabase(t, 3 + others);
  return { database, run, seats: seats.slice(0, 3), others: seats.slice(3).map(({ serverUuid }) => serverUuid) };
}

t.test('a node that is added has not voted, or is down', async (t) => {
  const { database, run, seats, others } = await seatsAnd(t, 2);
  const [up = '', gone = ''] = others;
  await database.query(`update cnapi_roster_authority set status = 'unknown' where server_uuid = $1::uuid`, [gone]);
  const duty = await claimedJob(database, run, { seats });
  const never = randomUUID();
  t.match(await added(database, duty.id, [up, gone, never]), { refusal: null });
  const nodes = new Map((await listPushNodes(database, duty.id, {})).map((node) => [node.server_uuid, node]));
  t.match(nodes.get(up), { state: 'new', reason: null });
  for (const server of [gone, never]) t.match(nodes.get(server), { state: 'unavailable', reason: 'down' });
  t.match((await advanceJob(database, duty)).nodeCounts, { new: 4, ready: 0, unavailable: 2 });
  t.match(await rowOf(database, duty.id), { node_count: 6, quorum: 6 }, 'all are 100%');
});

t.test('a quorum in percent follows added nodes while the job votes, and no other quorum does', async (t) => {
  const { database, seats, others } = await seatsAnd(t, 3);
  const quorumAfter = async (state: State, percent: number | null) => {
    const job = await jobIn(database, seats, state);
    await database.query('update cnapi_push_jobs set quorum = 2, quorum_percent = $2::float8 where id = $1::uuid', [
      job,
      percent,
    ]);
    await added(database, job, others);
    const { node_count, quorum } = (await rowOf(database, job)) ?? {};
    return { node_count, quorum };
  };
  t.same(await quorumAfter('voting', 50), { node_count: 6, quorum: 3 });
  t.same(await quorumAfter('running', 50), { node_count: 6, quorum: 2 });
  t.same(await quorumAfter('voting', null), { node_count: 6, quorum: 2 });
});

t.test(
  'nodes are added while votes count, if none is a node already and the job does not grow too large',
  async (t) => {
    const { database, seats, others } = await seatsAnd(t, 1);
    const [other = ''] = others;
    const known = seats[1]?.serverUuid ?? '';
    const late = 'created_tick = created_tick - 1000';
    const refusals: readonly [State, string | undefined, servers: string[], limit: number, refusal: string | null][] = [
      ['voting', undefined, [other], 4, null],
      ['running', undefined, [other], 4, null],
      ['waiting', undefined, [other], 4, 'waiting'],
      ['waiting', "abort_requested = 'hard'", [other], 4, 'aborting'],
      ['aborting', undefined, [other], 4, 'aborting'],
      ['ended', undefined, [other], 4, 'ended'],
      ['voting, to be aborted', undefined, [other], 4, 'aborting'],
      ['running, to be aborted', undefined, [other], 4, 'aborting'],
      ['voting', late, [other], 4, 'late'],
      ['running', late, [other], 4, 'late'],
      ['voting', undefined, [other, known], 5, 'present'],
      ['voting', undefined, [other], 3, 'full'],
    ];
    for (const [state, also, servers, limit, refusal] of refusals) {
      const job = await jobIn(database, seats, state);
      if (also !== undefined) await database.query(`update cnapi_push_jobs set ${also} where id = $1::uuid`, [job]);
      const before = await rowOf(database, job);
      const about = `${state}, ${also}: ${refusal}`;
      const present = refusal === 'present' ? [known] : [];
      t.same(await added(database, job, servers, limit), { refusal, present }, about);
      const nodes = (await listPushNodes(database, job, {})).length;
      t.equal(nodes, refusal === null ? 4 : 3, about);
      if (refusal !== null) t.same(await rowOf(database, job), before, about);
    }
    t.equal(await added(database, randomUUID(), [other]), undefined);
  },
);

t.test('only the nodes for which a caller asked that are aborted, and only once they may be', async (t) => {
  const { database, run, seats } = await seatedDatabase(t, 8);
  const duty = await claimedJob(database, run, { seats, fields: { quorum: 1, quorumPercent: undefined } });
  // Two of each: a caller wants the first one to be aborted, and not the second one.
  const pair = (place: number) => seats.slice(2 * place, 2 * place + 2);
  const [ended, running, softly, ready] = [pair(0), pair(1), pair(2), pair(3).slice(0, 1)];
  const unasked = pair(3).slice(1);
  const vote = (some: readonly AgentSeat[]) => storeVotes(database, votesOf(duty.id, { seats: some }, true));
  await vote([...ended, ...running, ...softly]);
  await startNodes(database, duty, { ids: Array.from({ length: 6 }, () => randomUUID()), runMs: 0 });
  await beginCommands(database, duty.id);
  await database.query(
    `update cnapi_tasks set state = 'ended', outcome = 'complete', exit_code = 0 where server_uuid = any ($1::uuid[])`,
    [ended.map(({ serverUuid }) => serverUuid)],
  );
  await advanceJob(database, duty);
  await vote(ready);

  const request = (how: 'soft' | 'hard', ...servers: readonly (string | undefined)[]) =>
    requestAbortOfNodes(database, duty.id, { nodes: servers.map((server = '') => server), how });
  const firstOf = ([seat]: readonly AgentSeat[]) => seat?.serverUuid;
  const requested = async () =>
    (
      await database.query<{ server_uuid: string; abort_requested: string }>(
        'select server_uuid, abort_requested from cnapi_push_nodes where abort_requested is not null order by 1',
      )
    ).rows.map(({ server_uuid, abort_requested }) => [server_uuid, abort_requested]);
  const unknownServer = randomUUID();
  t.same(await request('hard', firstOf(running), unknownServer), { state: 'running', missing: [unknownServer] });
  t.same(await requested(), [], 'one of them is not a node');
  t.same(await request('hard', firstOf(ended), firstOf(running)), { state: 'running', missing: [] });
  await request('soft', firstOf(running), firstOf(softly));
  t.same(
    await requested(),
    [
      [firstOf(running), 'hard'],
      [firstOf(softly), 'soft'],
    ],
    'a node that has ended stays as it is, and a hard abort hard',
  );

  t.same(
    (await abortNodes(database, duty, 10)).map(({ serverUuid }) => serverUuid),
    [firstOf(running)],
    'its agent is told',
  );
  const nodes = async () =>
    (await listPushNodes(database, duty.id, {})).map(({ state, reason, is_cancelled }) =>
      is_cancelled ? [state, 'cancelled'] : reason === null ? state : [state, reason],
    );
  const others = ['succeeded', 'succeeded', ['running', 'cancelled'], 'running', 'running', 'running'];
  t.same(await nodes(), [...others, 'ready', 'new']);

  await request('soft', firstOf(ready));
  await abortNodes(database, duty, 10);
  t.same(await nodes(), [...others, ['was_ready', 'node-aborted'], 'new'], 'what has not started need not end');
  await request('hard', firstOf(unasked));
  await abortNodes(database, duty, 10);
  t.same(await nodes(), [...others, ['was_ready', 'node-aborted'], ['unavailable', 'node-aborted']]);
  const { rows } = await database.query<{ server_uuid: string }>(
    'select server_uuid from cnapi_push_busy where rehab_since is not null',
  );
  t.same(
    rows.map(({ server_uuid }) => server_uuid),
    [firstOf(ready)],
    'its agent is told to forget the job',
  );
});

t.test('a start that was decided before a change of the job starts what the job allows now', async (t) => {
  const start = { runMs: 20_000, refillMs: 0 };
  const rows: readonly [PushJobChanges, typeof start, number][] = [
    [{ concurrency: 2 }, start, 1],
    [{ start_rate: 20 }, start, 2],
    [{ start_rate: 20 }, { ...start, refillMs: 50 }, 1],
    [{ start_rate: 20 }, { ...start, refillMs: 100 }, 0],
    [{ start_rate: 1 }, { ...start, refillMs: 1 }, 0],
    [{ run_timeout_ms: 20_000 }, start, 0],
    [{ run_timeout_ms: 20_001 }, start, 3],
    [{ max_failures: 0 }, start, 0],
    [{ max_failures: 1 }, start, 3],
    [{ concurrency: 10, start_rate: 1_000, max_failures: 5, voting_timeout_ms: 1 }, start, 3],
  ];
  const { database, run, seats } = await seatedDatabase(t, 5);
  for (const [changes, about, count] of rows) {
    await database.query('delete from cnapi_push_busy');
    const duty = await claimedJob(database, run, { seats });
    await storeVotes(database, votesOf(duty.id, { seats }, true));
    await startNodes(database, duty, { ids: [randomUUID(), randomUUID()], runMs: 0 });
    // One of the two that have started has failed.
    await database.query(
      `update cnapi_push_nodes set state = 'failed' where server_uuid = (
         select min(server_uuid::text)::uuid from cnapi_push_nodes where job = $1::uuid and task is not null)`,
      [duty.id],
    );
    await changePushJob(database, duty.id, { changes });
    const ids = seats.map(() => randomUUID());
    const started = await startNodes(database, duty, { ...about, ids });
    t.equal(started.length, count, JSON.stringify([changes, about]));
  }
});

t.test('an abort whose cause a caller has taken away does nothing', async (t) => {
  const times = { ageMs: 30_000, stateMs: 30_000 };
  const rows: readonly [AbortCause, without: PushJobChanges, withIt: PushJobChanges][] = [
    ['run-timeout', { run_timeout_ms: 30_001 }, { run_timeout_ms: 30_000 }],
    ['failures', { max_failures: null }, { max_failures: 0 }],
    ['failures', { max_failures: 1 }, { max_failures: 0 }],
    ['voting-timeout', { voting_timeout_ms: 30_001 }, { voting_timeout_ms: 30_000 }],
    ['voting-timeout', { quorum: 1, voting_timeout_ms: 1 }, { quorum: 2 }],
    ['no-quorum', { quorum: 1 }, { quorum: 2 }],
  ];
  const { database, run, seats } = await seatedDatabase(t, 3);
  for (const [cause, without, withIt] of rows) {
    await database.query('delete from cnapi_push_busy');
    const duty = await claimedJob(database, run, { seats });
    await storeVotes(database, votesOf(duty.id, { seats: seats.slice(1, 2) }, true));
    await database.query(
      `update cnapi_push_nodes set state = case server_uuid when $2::uuid then 'failed' else 'unavailable' end
         where job = $1::uuid and state = 'new'`,
      [duty.id, seats[0]?.serverUuid],
    );
    const isRunning = cause === 'run-timeout' || cause === 'failures';
    if (isRunning) await database.query(`update cnapi_push_jobs set state = 'running' where id = $1::uuid`, [duty.id]);
    const abort = {
      because: { cause, ...times },
      ending: 'aborted',
      soft: false,
      reason: 'a test',
      limit: 10,
    } as const;
    for (const [changes, state] of [
      [without, isRunning ? 'running' : 'voting'],
      [withIt, 'aborting'],
    ] as const) {
      t.ok(await changePushJob(database, duty.id, { changes }));
      await abortJob(database, duty, abort);
      t.match(await rowOf(database, duty.id), { state }, JSON.stringify([cause, changes]));
    }
  }
});

t.test('nothing is requested of the nodes of a job that has ended, or does not exist', async (t) => {
  const { database, seats, first } = await seatedDatabase(t, 1);
  const job = await jobIn(database, seats, 'ended');
  const nodes = [first.serverUuid];
  t.match(await requestAbortOfNodes(database, job, { nodes, how: 'hard' }), { state: 'ended' });
  const { rows } = await database.query('select 1 from cnapi_push_nodes where abort_requested is not null');
  t.same(rows, []);
  t.equal(await requestAbortOfNodes(database, randomUUID(), { nodes, how: 'hard' }), undefined);
});
