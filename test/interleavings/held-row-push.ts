/** Work on push jobs, for the test of a locked row. */
import { randomUUID } from 'node:crypto';
import type { Test } from 'tap';
import { DutyKeeper } from '../../lib/control/duty/duty-keeper.ts';
import { Coordinator } from '../../lib/control/push/coordinator/coordinator.ts';
import { deleteEndedPushJobs } from '../../lib/control/push/expiry/expiry-store.ts';
import { AgentMessenger, type PushSession } from '../../lib/control/push/messenger/agent-messenger.ts';
import { storeVotes } from '../../lib/control/push/messenger/messenger-store.ts';
import { createPushJob, PUSH_DUTY } from '../../lib/control/push/push-store.ts';
import { cancelTask } from '../../lib/control/tasks/store/task-store.ts';
import type { PostgresDatabase } from '../../lib/platform/postgres/pool.ts';
import { systemRandom } from '../../lib/platform/random.ts';
import { PUSH_CAPABILITY } from '../../lib/protocol/push.ts';
import { liveRun } from '../control/legacy/support/legacy-seats.ts';
import { seat } from '../control/tasks/support/task-database.ts';
import { createMemoryBus, MemoryHub } from '../support/memory-bus.ts';
import { until } from '../support/until.ts';
import { heldOf, NAMES, ports, turns, type Work, workOn } from './held-row-work.ts';
import { newPushJob, votesOf } from './push-statements.ts';

/** A job of one server. */
interface One {
  job: string;
  serverUuid: string;
  session: PushSession;
}

/** Jobs, their nodes, their servers and their duties: the rows of the second one are locked. */
const holdsOf = (ones: readonly One[], tables: readonly string[]): Record<string, string> => {
  const { job, serverUuid } = heldOf(ones);
  const all: Record<string, string> = {
    cnapi_push_jobs: `id = '${job}'`,
    cnapi_push_nodes: `job = '${job}'`,
    cnapi_push_busy: `server_uuid = '${serverUuid}'`,
    cnapi_duties: `id = '${job}'`,
  };
  return Object.fromEntries(Object.entries(all).filter(([table]) => tables.includes(table)));
};

export async function pushWorks(t: Test, database: PostgresDatabase): Promise<Work[]> {
  const run = await liveRun(database);
  const bus = createMemoryBus({ hub: new MemoryHub(), random: systemRandom, ...ports, beatMs: 50 });
  await bus.start();
  const config = { slowPollMs: 60_000, slowPollNoBusMs: 60_000 };
  const deps = { database, bus, ...ports, config };
  const messenger = new AgentMessenger({ ...deps, session: () => undefined, unsent: { isHalfFull: false } });
  messenger.start();
  const quiet = { tasks: { notifyAuthorities: () => {} }, sendOrders: () => {}, waitlist: undefined as never };
  const coordinator = new Coordinator({ ...deps, random: systemRandom, ...quiet });
  coordinator.start();
  const keeper = new DutyKeeper({
    ...deps,
    run: () => run,
    isHealthy: () => true,
  });
  t.teardown(async () => {
    await keeper.stop();
    coordinator.stop();
    await messenger.stop();
    await bus.stop();
  });

  const newOne = async (): Promise<One> => {
    const incarnation = randomUUID();
    const { serverUuid } = await seat(database, { run });
    await database.query('update cnapi_roster_authority set incarnation = $2::uuid where server_uuid = $1::uuid', [
      serverUuid,
      incarnation,
    ]);
    const job = { ...newPushJob([serverUuid]), votingTimeoutMs: 3_600_000, runTimeoutMs: 3_600_000 };
    await createPushJob(database, job);
    const socket = { isBackedUp: false, send: () => true };
    const session = { serverUuid, incarnation, capabilities: new Set([PUSH_CAPABILITY]), socket };
    return { job: job.id, serverUuid, session };
  };
  const newOnes = () => Promise.all(NAMES.map(newOne));
  const voted = async (ones: readonly One[]) => {
    for (const { job, session } of ones) await storeVotes(database, votesOf(job, { seats: [session] }, true));
  };
  /** Jobs that nobody carries out. */
  const idle = async () => {
    const ones = await newOnes();
    await database.query('delete from cnapi_duties where id = any ($1::uuid[])', [ones.map(({ job }) => job)]);
    await voted(ones);
    return ones;
  };
  const count = async (sql: string, of: string): Promise<number> => (await database.query(sql, [of])).rows.length;
  const isNode = async ({ job }: One, state: string) =>
    (await count(`select 1 from cnapi_push_nodes where job = $1 and state = '${state}'`, job)) > 0;
  const isJob = async ({ job }: One, state: string) =>
    (await count(`select 1 from cnapi_push_jobs where id = $1 and state = '${state}'`, job)) > 0;

  const withdrawing = await idle();
  const leaving = await idle();
  await database.query('update cnapi_push_busy set rehab_since = cnapi_now() where job = any ($1::uuid[])', [
    leaving.map(({ job }) => job),
  ]);
  const old = await idle();
  await database.query(
    `update cnapi_push_jobs set state = 'ended', outcome = 'aborted', state_since = cnapi_now() - interval '9 days'
       where id = any ($1::uuid[])`,
    [old.map(({ job }) => job)],
  );
  const starting = await newOnes();
  const ending = await newOnes();
  keeper.start({ [PUSH_DUTY]: coordinator });
  await voted(ending);
  coordinator.changed(ending.map(({ job }) => job));
  await until(async () => (await Promise.all(ending.map((one) => isJob(one, 'running')))).every((is) => is));
  await until(() => keeper.held === starting.length + ending.length, 'all duties to be claimed');
  const { rows: tasks } = await database.query<{ task: string }>(
    'select task from cnapi_push_nodes where job = any ($1::uuid[])',
    [ending.map(({ job }) => job)],
  );

  const vote = (ones: readonly One[], ready: boolean) => () => {
    for (const { job, session } of ones)
      messenger.onVote(session, { type: 'push_vote', job, ready, ...(ready ? {} : { reason: 'stopping' }) });
  };
  return [
    workOn(starting, {
      name: 'votes for push jobs, and their starts',
      holds: holdsOf(starting, ['cnapi_push_jobs', 'cnapi_push_nodes', 'cnapi_duties']),
      begin: vote(starting, true),
      isSo: (one) => isJob(one, 'running'),
    }),
    workOn(withdrawing, {
      name: 'votes that are withdrawn',
      holds: holdsOf(withdrawing, ['cnapi_push_jobs', 'cnapi_push_nodes', 'cnapi_push_busy']),
      begin: vote(withdrawing, false),
      isSo: (one) => isNode(one, 'unavailable'),
    }),
    workOn(leaving, {
      name: 'servers that leave rehab',
      holds: holdsOf(leaving, ['cnapi_push_busy']),
      begin: () => {
        for (const { job, session } of leaving) messenger.onAborted(session, { type: 'push_aborted', job });
      },
      isSo: async ({ serverUuid }) =>
        (await count('select 1 from cnapi_push_busy where server_uuid = $1', serverUuid)) === 0,
    }),
    workOn(ending, {
      name: 'ends of push jobs',
      holds: holdsOf(ending, ['cnapi_push_jobs', 'cnapi_push_nodes', 'cnapi_push_busy', 'cnapi_duties']),
      begin: () => {
        for (const { task } of tasks) turns(t, () => cancelTask(database, task))();
      },
      isSo: (one) => isJob(one, 'ended'),
    }),
    workOn(old, {
      name: 'deletions of old push jobs',
      // Whoever locks a node has locked its job first.
      holds: holdsOf(old, ['cnapi_push_jobs']),
      begin: turns(t, () => deleteEndedPushJobs(database, { days: 1, limit: 100, nodes: 10_000 })),
      isSo: async ({ job }) => (await count('select 1 from cnapi_push_jobs where id = $1', job)) === 0,
    }),
  ];
}
