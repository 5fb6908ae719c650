/**
 * The sides of the task figures: cnapi, and queues that a user might choose instead. Each does the
 * same: a caller requests a job that does nothing, a worker in another process does it, and its end
 * is recorded and, if the caller waits for it, sent to the caller. After each turn a count checks
 * that all jobs were done.
 */
import { Redis } from 'ioredis';
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import { cpuMsOf } from '../../bench/cpu.ts';
import type { BenchContext } from '../../bench/figure.ts';
import type { Helper } from '../../bench/helper.ts';
import type { Absent, Side, Turn } from '../contest.ts';
import type { Handled, QueuePlan } from '../programs/queue.ts';
import { storesCpuMs } from '../stores.ts';

/** The operations of a turn; each side answers the same questions. */
export interface Work {
  name: string;
  /** Returns how long each job took, one after the other, in ms. */
  trips(order: { seconds: number; restMs: number }): Promise<number[]>;
  /** Returns jobs per second, either awaited (`run`) or only accepted (`add`). */
  lanes(order: { inFlight: number; seconds: number; how: 'add' | 'run' }): Promise<number>;
  /** Number of jobs not done yet. The query must be cheap, because it is repeated. */
  countUndone(): Promise<number>;
  tally(): Promise<Tally>;
  /** CPU time of all processes that take part, including the caller and the stores. */
  cpuMs(): number;
}

export interface Tally {
  dispatched: number;
  /** Counted by the worker. */
  handled: Handled;
  /** Counted by the store. */
  unfinished: number;
}

export type TakeTurn = (work: Work) => Promise<Turn>;

interface Peer {
  name: string;
  program: string;
  needsRedis?: true;
  variant?: string;
  /** Redis writes its log to disk before it answers. */
  isDurable?: true;
}

export const IN_FLIGHT = 64;

const peers: readonly Peer[] = [
  { name: 'graphile-worker', program: 'graphile-worker' },
  { name: 'graphile-worker, batched', program: 'graphile-worker', variant: 'batched' },
  { name: 'pg-boss', program: 'pg-boss' },
  { name: 'BullMQ', program: 'bullmq', needsRedis: true },
  { name: 'BullMQ, appendfsync always', program: 'bullmq', needsRedis: true, isDurable: true },
];

const DONE_WITHIN_MS = 60_000;
const LOOK_MS = 10;

/** @throws when a dispatched job was not done or has no recorded end */
export function checkDone(name: string, { dispatched, handled, unfinished }: Tally): void {
  const missing = dispatched - handled.distinct;
  if (dispatched === 0) throw new Error(`${name}: nothing was dispatched`);
  if (missing !== 0) throw new Error(`${name}: of ${dispatched} jobs dispatched ${missing} were never done`);
  if (unfinished !== 0) throw new Error(`${name}: the store has no end of ${unfinished} jobs`);
}

/** Resolves when all jobs are done and recorded. @throws when they are not done in time */
export async function untilDone(work: Work): Promise<void> {
  for (const deadline = clock.now() + DONE_WITHIN_MS; ; await clock.sleep(LOOK_MS)) {
    const isLate = clock.now() > deadline;
    if ((await work.countUndone()) > 0 && !isLate) continue;
    const tally = await work.tally();
    if (tally.unfinished === 0 || isLate) return checkDone(work.name, tally);
  }
}

/** Starts the queues that can run here; returns them, and why the others cannot run. */
export async function startQueues(
  context: BenchContext,
  { isEndAwaited, take }: { isEndAwaited: boolean; take: TakeTurn },
): Promise<{ sides: Side[]; absent: Absent[] }> {
  const sides: Side[] = [];
  const absent: Absent[] = [];
  for (const peer of peers) {
    const reason = whyAbsent(context, peer);
    if (reason === undefined) sides.push(await startQueue(context, peer, { isEndAwaited, take }));
    else absent.push({ name: peer.name, reason });
  }
  return { sides, absent };
}

function whyAbsent({ foundation }: BenchContext, { needsRedis, isDurable }: Peer): string | undefined {
  if (!needsRedis) return undefined;
  if (foundation.redisUrl === undefined) return 'there is no Redis: on Debian, apt-get install redis-server';
  if (isDurable && !foundation.isRedisOurs) return 'the settings of a Redis that was given are left alone';
  return undefined;
}

async function startQueue(
  context: BenchContext,
  { name, program, variant = '', isDurable }: Peer,
  { isEndAwaited, take }: { isEndAwaited: boolean; take: TakeTurn },
): Promise<Side> {
  const { foundation, startHelper } = context;
  const { redisUrl } = foundation;
  const databaseUrl = await foundation.createDatabase();
  const plan: QueuePlan = { databaseUrl, redisUrl, concurrency: IN_FLIGHT, isEndAwaited, variant };
  const start = (role: string) =>
    startHelper({ name: `${program}-${role}`, file: `tools/peers/programs/${program}.ts` });
  const [caller, worker] = [await start('caller'), await start('worker')];
  await caller.ask('startCaller', plan);
  await worker.ask('startWorker', plan);
  const work = workOf(context, name, [caller, worker]);
  const turn = async () => {
    const taken = await take(work);
    await untilDone(work);
    return taken;
  };
  return { name, take: isDurable ? () => withFsync(redisUrl ?? '', turn) : turn };
}

function workOf(context: BenchContext, name: string, [caller, worker]: [Helper, Helper]): Work {
  const count = async () => ({
    dispatched: await caller.ask<number>('dispatched'),
    handled: await worker.ask<Handled>('handled'),
  });
  return {
    name,
    trips: (order) => caller.ask('trips', order),
    lanes: (order) => caller.ask('lanes', order),
    async countUndone() {
      const { dispatched, handled } = await count();
      return dispatched - handled.distinct;
    },
    cpuMs: () => cpuMsOf([caller.program.pid, worker.program.pid]) + storesCpuMs(context),
    tally: async () => ({ ...(await count()), unfinished: await caller.ask<number>('unfinished') }),
  };
}

/** Runs `work` while Redis flushes its file to disk before each answer. */
async function withFsync<Result>(redisUrl: string, work: () => Promise<Result>): Promise<Result> {
  const redis = new Redis(redisUrl);
  try {
    await redis.config('SET', 'appendfsync', 'always');
    await redis.config('SET', 'appendonly', 'yes');
    while (!(await redis.info('persistence')).includes('aof_rewrite_in_progress:0')) await clock.sleep(LOOK_MS);
    return await work();
  } finally {
    await redis.config('SET', 'appendonly', 'no');
    redis.disconnect();
  }
}
