/**
 * The start rate of a job on a real Postgres, when its holder begins again or is replaced. Each
 * start uses up the rate for 1,000 s; the test lets that time pass in the job's row.
 */
import t, { type Test } from 'tap';
import { Coordinator } from '../../../../lib/control/push/coordinator/coordinator.ts';
import { advanceJob, startNodes } from '../../../../lib/control/push/coordinator/coordinator-store.ts';
import { storeVotes } from '../../../../lib/control/push/messenger/messenger-store.ts';
import { DatabaseBusyError } from '../../../../lib/platform/errors.ts';
import { silentLogger as log } from '../../../../lib/platform/log.ts';
import type { Queryable } from '../../../../lib/platform/postgres/database.ts';
import { systemRandom as random } from '../../../../lib/platform/random.ts';
import { systemClock as clock } from '../../../../lib/platform/time/clock.ts';
import { votesOf } from '../../../interleavings/push-statements.ts';
import { createMemoryBus, MemoryHub } from '../../../support/memory-bus.ts';
import { until } from '../../../support/until.ts';
import { claimedJob, seatedDatabase } from '../job-rows.ts';

const PERIOD_S = 1_000;

async function ratedJob(t: Test, startRate: number) {
  const { database, open, run, seats } = await seatedDatabase(t, 3);
  const fields = { quorum: 1, quorumPercent: undefined, startRate, runTimeoutMs: 3_600_000 };
  const duty = await claimedJob(database, run, { seats, fields });
  await storeVotes(database, votesOf(duty.id, { seats }, true));
  const started = async () => {
    const { rows } = await database.query<{ count: number }>(
      'select count(*)::int as count from cnapi_push_nodes where task is not null',
    );
    return rows[0]?.count;
  };
  const pass = (seconds: number) =>
    database.query(
      'update cnapi_push_jobs set start_bucket_full_at = start_bucket_full_at - make_interval(secs => $1::float8)',
      [seconds],
    );
  return { database, open, duty, started, pass };
}

/** A coordinator that carries out the job, and may be asked to do so again. */
function holderOf(t: Test, { open, duty }: Pick<Awaited<ReturnType<typeof ratedJob>>, 'open' | 'duty'>) {
  // Fails at once if it has to wait for a row.
  const connection = open({ maxConnections: 1, lockTimeoutMs: 50 });
  let rounds = 0;
  const database: Queryable = {
    query(text, values, options) {
      if (options?.name === 'advance push job') rounds += 1;
      return connection.query(text, values, options);
    },
  };
  const coordinator = new Coordinator({
    database,
    bus: createMemoryBus({ hub: new MemoryHub(), random, clock, log, beatMs: 50 }),
    ...{ clock, random, log, config: { slowPollMs: 60_000 }, waitlist: undefined as never },
    ...{ tasks: { notifyAuthorities: () => {} }, sendOrders: () => {} },
  });
  return {
    coordinator,
    carryOut() {
      const over = new AbortController();
      t.teardown(() => over.abort());
      const work = coordinator.carryOut(duty, over.signal).catch((error: unknown) => error);
      return {
        work,
        stop() {
          over.abort();
          return work;
        },
      };
    },
    /** Two more rounds have begun: what the first of them found has been done. */
    async rounds() {
      const before = rounds;
      await until(() => {
        coordinator.changed([duty.id]);
        return rounds >= before + 2;
      }, 'two rounds');
    },
  };
}

t.test('a holder that begins again after locked rows keeps the start rate', async (t) => {
  const job = await ratedJob(t, 1 / PERIOD_S);
  const holder = holderOf(t, job);
  let { work } = holder.carryOut();
  await until(async () => (await job.started()) === 1, 'the first start');
  for (const [passedS, count] of [
    [600, 1],
    [300, 1],
    [100, 2],
  ] as const) {
    await job.database.transaction(async (locker) => {
      await locker.query('select 1 from cnapi_push_jobs for update');
      holder.coordinator.changed([job.duty.id]);
      t.ok((await work) instanceof DatabaseBusyError);
    });
    await job.pass(passedS);
    ({ work } = holder.carryOut());
    await holder.rounds();
    t.equal(await job.started(), count);
  }
});

t.test('holders that replace each other keep the start rate', async (t) => {
  const job = await ratedJob(t, 1 / PERIOD_S);
  for (const [passedS, count] of [
    [0, 1],
    [0, 1],
    [600, 1],
    [400, 2],
    [0, 2],
  ] as const) {
    await job.pass(passedS);
    const holder = holderOf(t, job);
    const { stop } = holder.carryOut();
    await holder.rounds();
    t.equal(await job.started(), count);
    await stop();
  }
});

t.test('a start is stored with the time for which it and the starts before it use up the rate', async (t) => {
  const { database, duty, pass } = await ratedJob(t, 1 / PERIOD_S);
  const fullInS = async () => Math.ceil((await advanceJob(database, duty)).startBucketFullInMs / 1_000);
  const start = (refillMs: number) => startNodes(database, duty, { ids: [random.uuid()], runMs: 0, refillMs });
  t.equal(await fullInS(), 0);
  const beganAt = clock.now();
  await start(0);
  const first = await fullInS();
  t.same(await start(500_000), [], 'the rate is used up');
  await pass(3 * PERIOD_S);
  const third = await fullInS();
  const tookS = Math.ceil((clock.now() - beganAt) / 1_000);
  for (const [value, wanted] of [
    [first, PERIOD_S],
    [third, -2 * PERIOD_S],
  ] as const)
    t.ok(value <= wanted && value >= wanted - tookS, `${value} s`);
});
