/**
 * A lock that changes hands: our tickets compared with Redlock on the same Redis and advisory locks
 * of the same Postgres.
 */
import { BenchCaller } from '../../bench/caller.ts';
import { cpuMsOf } from '../../bench/cpu.ts';
import type { BenchContext, Figure, Result } from '../../bench/figure.ts';
import { summarize } from '../../bench/statistics.ts';
import { createTicket, releaseTicket, waitForTicket } from '../../bench/tickets.ts';
import type { Zone } from '../../bench/zone.ts';
import { type Contention, contend, handOver, type Lock, type LockPlan } from '../contention.ts';
import { type Absent, compare, type Measure, type Side, type Turn, takePairs, withAbsent } from '../contest.ts';
import { storesCpuMs } from '../stores.ts';
import { OWN } from './own-tasks.ts';

interface Peer {
  name: string;
  kind: 'redlock' | 'advisory';
  retry?: LockPlan['retry'];
}

interface Times {
  handOver: { seconds: number };
  contend: { contenders: number; seconds: number };
}

const CONTENDERS = 64;
const QUEUE = 'peers';

const peers: readonly Peer[] = [
  { name: 'Redlock', kind: 'redlock' },
  { name: 'Redlock, retries within 10 ms', kind: 'redlock', retry: { retryDelay: 5, retryJitter: 5 } },
  { name: 'advisory lock', kind: 'advisory' },
];

const measures: readonly Measure[] = [
  { key: 'handOver', what: 'given back → held by the one that waits, p50', unit: 'ms' },
  { key: 'perSecond', what: `hand-overs per second, ${CONTENDERS} contenders`, unit: '/s' },
  { key: 'changed', what: 'of the times it was given, to another than before', unit: '%' },
  { key: 'cpu', what: `CPU per hand-over, all processes, ${CONTENDERS} contenders`, unit: 'ms' },
  { key: 'longest', what: `longest wait of ${CONTENDERS} contenders`, unit: 'ms' },
];

export const locks: Figure = {
  name: 'locks',
  says: 'a lock that changes hands, compared with Redlock and advisory locks',
  seconds: 220,
  measure,
};

async function measure(context: BenchContext): Promise<Result[]> {
  const seconds = context.isQuick ? 1 : 5;
  const times: Times = { handOver: { seconds }, contend: { contenders: CONTENDERS, seconds } };
  const own = await startOwn(context, times);
  const absent: Absent[] = [];
  const sides: Side[] = [];
  for (const peer of peers) {
    if (peer.kind === 'advisory' || context.foundation.redisUrl !== undefined)
      sides.push(await startPeer(context, peer, times));
    else absent.push({ name: peer.name, reason: 'there is no Redis: on Debian, apt-get install redis-server' });
  }
  const { rounds } = context;
  // The first turns warm up the code.
  for (const side of [own, ...sides]) await side.take();
  const pairs = await takePairs(own, sides, { rounds, say: (text) => context.say(`locks, ${text}`) });
  return withAbsent(compare(pairs, measures), absent);
}

async function startOwn(context: BenchContext, times: Times): Promise<Side> {
  const zone = await context.startZone();
  const lock = ticketLock(zone);
  const pids = zone.instances.map(({ helper }) => helper.program.pid);
  return {
    name: OWN,
    take: () =>
      takeTurn({
        handOver: () => handOver(lock, times.handOver),
        contend: () => contend(lock, times.contend),
        cpuMs: () => cpuMsOf([process.pid, ...pids]) + storesCpuMs(context),
      }),
  };
}

async function startPeer(context: BenchContext, { name, kind, retry = {} }: Peer, times: Times): Promise<Side> {
  const { foundation, startHelper } = context;
  const databaseUrl = await foundation.createDatabase();
  const plan: LockPlan = { databaseUrl, redisUrl: foundation.redisUrl, contenders: CONTENDERS, retry };
  const helper = await startHelper({ name: kind, file: 'tools/peers/programs/locks.ts' });
  await helper.ask(kind, plan);
  return {
    name,
    take: () =>
      takeTurn({
        handOver: () => helper.ask('handOver', times.handOver),
        contend: () => helper.ask('contend', times.contend),
        cpuMs: () => cpuMsOf([helper.program.pid]) + storesCpuMs(context),
      }),
  };
}

interface LockWork {
  handOver(): Promise<number[]>;
  contend(): Promise<Contention>;
  /** CPU time of all processes that take part. */
  cpuMs(): number;
}

async function takeTurn(work: LockWork): Promise<Turn> {
  const { median: handOver } = summarize(await work.handOver());
  const before = work.cpuMs();
  const { perSecond, changedPercent, waits } = await work.contend();
  const cpu = (work.cpuMs() - before) / (waits.length * (changedPercent / 100));
  return { handOver, perSecond, changed: changedPercent, cpu, longest: summarize(waits).max };
}

/** Created at one instance, awaited at the next, released at the third. */
function ticketLock({ instances }: Zone): Lock {
  const caller = new BenchCaller();
  const urlAt = (place: number): string => instances[place % instances.length]?.url ?? '';
  return {
    async acquire(contender, turn) {
      const place = contender + turn;
      const ticket = await createTicket(caller, urlAt(place), QUEUE);
      await waitForTicket(caller, urlAt(place + 1), ticket);
      return () => releaseTicket(caller, urlAt(place + 2), ticket);
    },
  };
}
