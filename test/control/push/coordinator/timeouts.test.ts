/** The limits of commands when the run timeout of their job is changed, on a real Postgres. */
import t, { type Test } from 'tap';
import { changePushJob } from '../../../../lib/control/push/change-store.ts';
import { advanceJob, changeTimeouts, startNodes } from '../../../../lib/control/push/coordinator/coordinator-store.ts';
import { readOrders, storeVotes } from '../../../../lib/control/push/messenger/messenger-store.ts';
import type { NewPushJob } from '../../../../lib/control/push/push-store.ts';
import { systemRandom as random } from '../../../../lib/platform/random.ts';
import { votesOf } from '../../../interleavings/push-statements.ts';
import { type AgentSeat, claimedJob, seatedDatabase } from '../job-rows.ts';

/** A job of two nodes: one has started with the job, and the other one 20 s later. */
async function started(t: Test, fields: Partial<NewPushJob> = {}) {
  const { database, run, seats } = await seatedDatabase(t, 2);
  const duty = await claimedJob(database, run, { seats, fields: { quorum: 1, ...fields } });
  for (const [seat, runMs] of [
    [seats[0], 0],
    [seats[1], 20_000],
  ] as [AgentSeat, number][]) {
    await storeVotes(database, votesOf(duty.id, { seats: [seat] }, true));
    await startNodes(database, duty, { ids: [random.uuid()], runMs });
  }
  const change = (run_timeout_ms: number) => changePushJob(database, duty.id, { changes: { run_timeout_ms } });
  const outdated = async () => (await advanceJob(database, duty)).outdatedTimeouts;
  const servers = seats.map(({ serverUuid }) => serverUuid);
  /** The time limits of the two nodes' tasks, as a caller sees them. */
  const limits = async () => {
    const { rows } = await database.query<{ server_uuid: string; timeout_ms: number }>(
      `select server_uuid, timeout_ms from cnapi_tasks where name = 'push_command'`,
    );
    return servers.map((server) => rows.find(({ server_uuid }) => server_uuid === server)?.timeout_ms);
  };
  /** The time limits that the agents of the two nodes must be told. */
  const told = async () => {
    const orders = await readOrders(database, {
      ...{ jobs: [duty.id], limit: 10 },
      timeoutsSince: [{ jobId: duty.id, changes: 0 }],
    });
    return servers.map((server) => orders.find(({ serverUuid }) => serverUuid === server)?.timeoutMs);
  };
  return { database, duty, servers, change, outdated, limits, told };
}

t.test('each command gets what the changed run timeout leaves to it, and its agent is told', async (t) => {
  const { database, duty, change, outdated, limits, told } = await started(t);
  t.same(await limits(), [60_000, 40_000]);
  t.equal(await outdated(), 0);
  t.same(await told(), [undefined, undefined]);
  await change(90_000);
  t.equal(await outdated(), 2);
  await changeTimeouts(database, duty, 1);
  t.equal(await outdated(), 1, 'some at a time');
  await changeTimeouts(database, duty, 10);
  t.equal(await outdated(), 0);
  t.same(await limits(), [90_000, 70_000]);
  t.same(await told(), [90_000, 70_000]);
  await change(10_000);
  await changeTimeouts(database, duty, 10);
  t.same(await limits(), [10_000, 1], 'what is over already ends now');
  t.equal(await outdated(), 0);
});

t.test('the limit of each command stays', async (t) => {
  const { database, duty, change, outdated, limits, told } = await started(t, { nodeTimeoutMs: 30_000 });
  t.same(await limits(), [30_000, 30_000]);
  await change(45_000);
  t.equal(await outdated(), 1);
  await changeTimeouts(database, duty, 10);
  t.same(await limits(), [30_000, 25_000]);
  t.same(await told(), [undefined, 25_000]);
  await change(3_600_000);
  await changeTimeouts(database, duty, 10);
  t.same(await limits(), [30_000, 30_000]);
});

t.test('a command whose task is held gets its limit later, and one that has ended keeps its own', async (t) => {
  const { database, duty, servers, change, outdated, limits, told } = await started(t);
  await change(90_000);
  await database.transaction(async (holder) => {
    await holder.query('select 1 from cnapi_tasks where server_uuid = $1::uuid for update', [servers[0]]);
    await changeTimeouts(database, duty, 10);
  });
  t.same(await told(), [undefined, 70_000]);
  t.equal(await outdated(), 1);
  await database.query(
    `update cnapi_tasks set state = 'ended', outcome = 'complete', exit_code = 0 where server_uuid = $1::uuid`,
    [servers[0]],
  );
  await changeTimeouts(database, duty, 10);
  t.same(await limits(), [60_000, 70_000]);
  const { nodeCounts, outdatedTimeouts } = await advanceJob(database, duty);
  t.match({ nodeCounts, outdatedTimeouts }, { nodeCounts: { succeeded: 1 }, outdatedTimeouts: 0 });
});

t.test('a node that starts after the change starts with the limit that holds then', async (t) => {
  const { change, limits, told } = await started(t, { concurrency: 2, runTimeoutMs: 30_000 });
  t.same(await limits(), [30_000, 10_000]);
  await change(30_000);
  t.same(await told(), [undefined, undefined], 'nothing has changed');
});
