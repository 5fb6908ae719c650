/** What a coordinator decided by an earlier count of nodes, on a real Postgres. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { addPushNodes, changePushJob, requestAbortOfNodes } from '../../../../lib/control/push/change-store.ts';
import {
  abortJob,
  advanceJob,
  closeVoting,
  endJob,
  NODES_A_STEP,
  type PushJobRound,
  startNodes,
} from '../../../../lib/control/push/coordinator/coordinator-store.ts';
import { storeVotes } from '../../../../lib/control/push/messenger/messenger-store.ts';
import { type CoordinatorAction, decideActions } from '../../../../lib/control/push/push-job.ts';
import { createPushJob, MAX_UNFINISHED, readPushJob } from '../../../../lib/control/push/push-store.ts';
import { migrations } from '../../../../lib/control/subsystem-list.ts';
import { sweepTasks } from '../../../../lib/control/tasks/deadlines/deadline-store.ts';
import { cancelTask } from '../../../../lib/control/tasks/store/task-store.ts';
import { newPushJob, votesOf } from '../../../interleavings/push-statements.ts';
import { freshDatabase } from '../../../support/postgres.ts';
import { liveRun } from '../../legacy/support/legacy-seats.ts';
import { seat } from '../../tasks/support/task-database.ts';
import { type AgentSeat, beginCommands, claimedJob, seatedDatabase, startAll } from '../job-rows.ts';

t.test('a job whose last node has ended goes on if nodes were added before its end', async (t) => {
  const { database, run, seats } = await seatedDatabase(t, 2);
  const [one, other] = seats as [AgentSeat, AgentSeat];
  const held = await claimedJob(database, run, { seats: [one] });
  await storeVotes(database, votesOf(held.id, { seats: [one] }, true));
  const task = randomUUID();
  await startNodes(database, held, { ids: [task], runMs: 0 });
  await cancelTask(database, task);
  t.equal((await advanceJob(database, held)).nodeCounts.was_ready, 1, 'no node is left');

  const added = await addPushNodes(database, held.id, {
    nodes: [{ serverUuid: other.serverUuid, name: 'new' }],
    limit: 10,
  });
  t.match(added, { refusal: null });
  t.equal(await endJob(database, held, 'complete'), 1);
  t.match(await readPushJob(database, held.id), { state: 'running', counts: { new: 1, was_ready: 1 } });
});

/** What the coordinator does after this round. */
const actionOf = (round: PushJobRound): CoordinatorAction => {
  const [action] = decideActions({ ...round, startBucketFullInMs: 0, ticket: 'none', ticketTimeoutMs: 0 });
  if (action === undefined) throw new Error('no action applies');
  return action;
};

t.test('a job that is about to end without its quorum goes on if a caller lowers the quorum first', async (t) => {
  const { database, run, seats } = await seatedDatabase(t, 2);
  const [one, other] = seats as [AgentSeat, AgentSeat];
  const held = await claimedJob(database, run, { seats });
  await storeVotes(database, votesOf(held.id, { seats: [one] }, true));
  await storeVotes(database, votesOf(held.id, { seats: [other] }, false));
  const round = await advanceJob(database, held);
  const action = actionOf(round);
  if (action.do !== 'abort') throw new Error(`the round leads to ${action.do}`);
  const { cause, ...what } = action;
  t.match(action, { ending: 'quorum_failed', cause: 'no-quorum' });
  const abort = { ...what, because: cause && { cause, ageMs: round.ageMs, stateMs: round.stateMs }, limit: 10 };

  t.ok(await changePushJob(database, held.id, { changes: { quorum: 1 } }));
  await abortJob(database, held, abort);
  t.match(await readPushJob(database, held.id), { state: 'voting', quorum: 1, counts: { ready: 1 } });
  t.match(actionOf(await advanceJob(database, held)), { do: 'start' });
  t.ok(await changePushJob(database, held.id, { changes: { quorum: 2 } }));
  await abortJob(database, held, abort);
  t.match(await readPushJob(database, held.id), { state: 'aborting' }, 'the quorum is out of reach again');
});

t.test('the voting goes on if a caller prolongs it before it is closed', async (t) => {
  const { database, run, seats } = await seatedDatabase(t, 2);
  const [one, other] = seats as [AgentSeat, AgentSeat];
  const held = await claimedJob(database, run, {
    seats: [one, other],
    fields: { quorum: 1, quorumPercent: undefined },
  });
  await startAll(database, held, [one]);
  const waiting = async () => (await advanceJob(database, held)).nodeCounts.new;
  t.ok(await changePushJob(database, held.id, { changes: { voting_timeout_ms: 120_000 } }));
  await closeVoting(database, held, 119_999);
  t.equal(await waiting(), 1);
  await closeVoting(database, held, 120_000);
  t.equal(await waiting(), 0);
});

t.test('a server whose command may still run when its task is given up is in rehab', async (t) => {
  const { database, run, seats } = await seatedDatabase(t, 3);
  const duty = await claimedJob(database, run, { seats });
  await startAll(database, duty, seats);
  const [swept, late, done] = seats as [AgentSeat, AgentSeat, AgentSeat];
  const ends = async () => {
    const { nodeCounts } = await advanceJob(database, duty);
    const { rows } = await database.query<{ server_uuid: string; rehab: boolean }>(
      'select server_uuid, rehab_since is not null as rehab from cnapi_push_busy',
    );
    return { nodeCounts, rehab: Object.fromEntries(rows.map(({ server_uuid, rehab }) => [server_uuid, rehab])) };
  };

  // Ten times the time after which a silent agent's task is given up.
  await database.query(`update cnapi_tasks set worked_tick = worked_tick - 700 where server_uuid = $1::uuid`, [
    swept.serverUuid,
  ]);
  t.equal((await sweepTasks(database, { startByMs: undefined, overdueMs: 60_000 })).length, 1);
  // An agent that reports the same end has ended its command.
  const timedOut = { code: 'TaskTimeout', message: 'The task did not end within 60000 ms' };
  await endTaskOf(late, `outcome = 'failure', error = '${JSON.stringify(timedOut)}'`);
  await endTaskOf(done, `outcome = 'complete', exit_code = 0`);
  t.match(await ends(), { nodeCounts: { timed_out: 2, succeeded: 1 }, rehab: { [swept.serverUuid]: true } });
  t.strictSame(Object.keys((await ends()).rehab), [swept.serverUuid]);

  const next = await claimedJob(database, run, { seats: [swept] });
  await storeVotes(database, votesOf(next.id, { seats: [swept] }, true));
  t.match(await readPushJob(database, next.id), { counts: { nacked: 1 } }, 'no other job gets it');

  async function endTaskOf({ serverUuid }: AgentSeat, how: string): Promise<void> {
    await database.query(`update cnapi_tasks set state = 'ended', ${how} where server_uuid = $1::uuid`, [serverUuid]);
  }
});

t.test('an organization has a limited number of unfinished jobs, and so has the zone', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const { serverUuid } = await seat(database, { run: await liveRun(database) });
  const fill = (organization: string | null, count: number) =>
    database.query(
      `insert into cnapi_push_jobs (id, organization, command, options, node_count, quorum, voting_timeout_ms, run_timeout_ms, abort_timeout_ms)
         select gen_random_uuid(), $1::text, 'true', '{}', 1, 1, 1, 1, 1 from generate_series(1, $2::int)`,
      [organization, count],
    );
  const created = (organization: string | undefined) =>
    createPushJob(database, { ...newPushJob([serverUuid]), organization });
  await fill('acme', MAX_UNFINISHED.ofOrganization - 1);
  t.equal(await created('acme'), 'created');
  t.equal(await created('acme'), 'full');
  t.equal(await created('other'), 'created');
  await fill(null, MAX_UNFINISHED.inAll - MAX_UNFINISHED.ofOrganization - 1);
  t.equal(await created(undefined), 'full');
  const { rows } = await database.query('select 1 from cnapi_duties');
  t.equal(rows.length, 2, 'what is refused leaves nothing behind');
  await database.query(`update cnapi_push_jobs set state = 'ended', outcome = 'complete'`);
  t.equal(await created('acme'), 'created');
});

t.test('commands that have ended keep their ends, although their agents restarted before the round', async (t) => {
  const { database, run, seats } = await seatedDatabase(t, NODES_A_STEP + 5);
  const duty = await claimedJob(database, run, { seats });
  await startAll(database, duty, seats);
  while ((await advanceJob(database, duty)).isMore);
  await database.query(`update cnapi_tasks set state = 'ended', outcome = 'complete', exit_code = 0`);
  await database.query('update cnapi_roster_authority set incarnation = gen_random_uuid()');
  const round = await advanceJob(database, duty);
  t.match(round, { isMore: true, nodeCounts: { succeeded: NODES_A_STEP, running: 5, crashed: 0 } });
  t.match((await advanceJob(database, duty)).nodeCounts, { succeeded: NODES_A_STEP + 5, crashed: 0 });
});

t.test('a node whose agent comes back during the round that missed it was down, and did not restart', async (t) => {
  const { database, run, seats } = await seatedDatabase(t, 1);
  const duty = await claimedJob(database, run, { seats });
  await startAll(database, duty, seats);
  await database.query(`update cnapi_roster_authority set status = 'unknown'`);
  // When its task is cancelled, the round has looked for its agent.
  await database.query(
    `create function come_back() returns trigger language plpgsql as $$
       begin update cnapi_roster_authority set status = 'running'; return new; end $$;
     create trigger come_back before update on cnapi_tasks for each row execute function come_back()`,
  );
  t.match((await advanceJob(database, duty)).nodeCounts, { crashed: 1 });
  const { rows } = await database.query('select reason from cnapi_push_nodes');
  t.same(rows, [{ reason: 'down' }]);
});

t.test('a node is cancelled once, although its start becomes known only then', async (t) => {
  const { database, run, seats } = await seatedDatabase(t, 1);
  const duty = await claimedJob(database, run, { seats });
  await storeVotes(database, votesOf(duty.id, { seats }, true));
  await startNodes(database, duty, { ids: [randomUUID()], runMs: 0 });
  await beginCommands(database, duty.id);
  await abortJob(database, duty, { ending: 'aborted', soft: false, reason: 'asked', limit: NODES_A_STEP });
  const round = await advanceJob(database, duty);
  t.match(round, { nodeCounts: { running: 1 }, toCancel: 0 });
});

t.test('a node that a caller has just aborted does not count for the quorum', async (t) => {
  const { database, run, seats } = await seatedDatabase(t, 2);
  const duty = await claimedJob(database, run, { seats });
  await storeVotes(database, votesOf(duty.id, { seats }, true));
  const [{ serverUuid }] = seats as [AgentSeat];
  await requestAbortOfNodes(database, duty.id, { nodes: [serverUuid], how: 'hard' });
  t.same(await startNodes(database, duty, { ids: [randomUUID(), randomUUID()], runMs: 0 }), []);
  t.match(await readPushJob(database, duty.id), { state: 'voting' });
});

t.test('a node that a caller has just aborted does not start', async (t) => {
  const { database, run, seats } = await seatedDatabase(t, 2);
  const duty = await claimedJob(database, run, { seats, fields: { quorum: 1 } });
  await storeVotes(database, votesOf(duty.id, { seats }, true));
  const [one, other] = seats as [AgentSeat, AgentSeat];
  await requestAbortOfNodes(database, duty.id, { nodes: [one.serverUuid], how: 'soft' });
  const started = await startNodes(database, duty, { ids: [randomUUID(), randomUUID()], runMs: 0 });
  t.same(
    started.map(({ serverUuid }) => serverUuid),
    [other.serverUuid],
  );
});
