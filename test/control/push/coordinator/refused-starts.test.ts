/** Nodes whose agents do not run the command, although they were ready, on a real Postgres. */
import t from 'tap';
import { advanceJob, startNodes } from '../../../../lib/control/push/coordinator/coordinator-store.ts';
import { endRehab, storeVotes } from '../../../../lib/control/push/messenger/messenger-store.ts';
import { decideActions } from '../../../../lib/control/push/push-job.ts';
import { listPushNodes } from '../../../../lib/control/push/push-store.ts';
import { taskEnds } from '../../../../lib/control/tasks/store/task.ts';
import { systemRandom as random } from '../../../../lib/platform/random.ts';
import { votesOf } from '../../../interleavings/push-statements.ts';
import { claimedJob, nodeStates, seatedDatabase } from '../job-rows.ts';

/** The error of an agent. Its message is shown. */
const said = (code: string) => ({ code, message: `${code}: the agent says why` });

/** How the task ends before its command has started, and the status of the node. */
const rows: readonly [end: { code: string; message: string }, status: string][] = [
  // It does not wait for this job: it has restarted, gave up waiting, or runs another job.
  [said('StartRefused'), 'unavailable'],
  [said('AgentFull'), 'unavailable'],
  [said('AgentPaused'), 'unavailable'],
  [said('UnknownTask'), 'unavailable'],
  [taskEnds.notTaken, 'unavailable'],
  // It tried, and the command could not be started: its user or directory is gone, for example.
  [said('SpawnFailed'), 'failed'],
  [said('InvalidParameters'), 'failed'],
  // Nobody knows whether the command ran.
  [taskEnds.outcomeUnknown, 'crashed'],
  [taskEnds.timedOut, 'timed_out'],
];

t.test('each refused start gives its node an end, and its server leaves the job by rehab', async (t) => {
  const { database, run, seats } = await seatedDatabase(t, rows.length);
  const duty = await claimedJob(database, run, { seats });
  await storeVotes(database, votesOf(duty.id, { seats }, true));
  await startNodes(database, duty, { ids: seats.map(() => random.uuid()), runMs: 0 });
  for (const [index, [end]] of rows.entries())
    await database.query(
      `update cnapi_tasks set state = 'ended', outcome = 'failure', error = $2::json where server_uuid = $1::uuid`,
      [seats[index]?.serverUuid, JSON.stringify(end)],
    );

  const round = await advanceJob(database, duty);
  t.equal(round.inRehab, rows.length, 'their agents are told to forget the job');
  const nodes = await listPushNodes(database, duty.id, {});
  t.same(
    nodes.map(({ reason, state, message }) => [reason, state, message]),
    rows.map(([{ code, message }, status]) => [code, status, message]),
  );
  const view = { ...round, startBucketFullInMs: 0, ticket: 'none', ticketTimeoutMs: 0 } as const;
  t.match([...decideActions(view)][0], { do: 'end', outcome: 'complete' }, 'each node has ended');

  const busy = async () => (await database.query('select 1 from cnapi_push_busy where rehab_since is not null')).rows;
  t.equal((await busy()).length, rows.length);
  await endRehab(
    database,
    seats.map(({ serverUuid }) => ({ jobId: duty.id, serverUuid })),
  );
  t.same(await busy(), []);
});

t.test('a command that has begun, and whose agent refuses it then, has crashed', async (t) => {
  const { database, run, seats } = await seatedDatabase(t, 1);
  const duty = await claimedJob(database, run, { seats });
  await storeVotes(database, votesOf(duty.id, { seats }, true));
  await startNodes(database, duty, { ids: [random.uuid()], runMs: 0 });
  await database.query(`update cnapi_push_nodes set state = 'running'`);
  await database.query(`update cnapi_tasks set state = 'ended', outcome = 'failure', error = $1::json`, [
    JSON.stringify(said('StartRefused')),
  ]);
  await advanceJob(database, duty);
  t.same(await nodeStates(database), { crashed: 1 });
});
