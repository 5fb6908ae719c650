/**
 * Presence: the cost of clients that connect and stay, and how soon others are notified that a
 * client froze (its process is stopped: no FIN, no more heartbeats) or died (its process is killed:
 * the kernel closes its connections). The number of clients is the same for all.
 */
import { systemRandom } from '../../../lib/platform/random.ts';
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import type { BenchContext, Figure, Result } from '../../bench/figure.ts';
import { machineMs } from '../../bench/machine-clock.ts';
import { summarize } from '../../bench/statistics.ts';
import { number } from '../../bench/table.ts';
import { type Absent, compare, type Measure, type Side, type Turn, takePairs, withAbsent } from '../contest.ts';
import { type Crowd, type Look, ownSite, peerSites, type Site, type SiteMaker } from './presence-sites.ts';

interface Sizes {
  clients: number;
  perSecond: number;
  settleMs: number;
  windowMs: number;
  /** Clients frozen together, and clients killed together; in addition to the others. */
  victims: number;
}

const FULL: Sizes = { clients: 2_000, perSecond: 400, settleMs: 3_000, windowMs: 6_000, victims: 10 };
const QUICK: Sizes = { clients: 100, perSecond: 100, settleMs: 1_500, windowMs: 1_500, victims: 3 };
/** Minimum share of the heartbeats that are due; a busy machine may delay some. */
const LEAST_BEATS = 0.5;
const FROZEN: Look = { waitMs: 700, everyMs: 10 };
const KILLED: Look = { waitMs: 0, everyMs: 1 };

export const presence: Figure = {
  name: 'presence',
  says: 'clients that connect, stay, freeze and are killed, compared with socket.io with its Redis adapter, mosquitto and nats-server',
  seconds: 450,
  measure,
};

async function measure(context: BenchContext): Promise<Result[]> {
  const sizes = context.isQuick ? QUICK : FULL;
  const sides: Side[] = [];
  const absent: Absent[] = [];
  const lost = new Map<string, number>();
  const sideOf = (maker: SiteMaker): Side => ({
    name: maker.name,
    take: () => takeTurn(context, maker, { sizes, onLost: (count) => note(lost, maker.name, count) }),
  });
  for (const maker of peerSites) {
    const reason = maker.whyAbsent(context);
    if (reason === undefined) sides.push(sideOf(maker));
    else absent.push({ name: maker.name, reason });
  }
  const { rounds } = context;
  const pairs = await takePairs(sideOf(ownSite), sides, { rounds, say: (text) => context.say(`presence, ${text}`) });
  return withLost(withAbsent(compare(pairs, measuresOf(sizes)), absent), lost);
}

function measuresOf({ clients, perSecond }: Sizes): Measure[] {
  const crowd = `${number(clients)} clients`;
  return [
    { key: 'connect', what: `from dialling to present, ${crowd} at ${perSecond}/s, p50`, unit: 'ms' },
    { key: 'connectCpu', what: `CPU per client that comes, servers and stores, ${crowd}`, unit: 'ms' },
    { key: 'beatCpu', what: `CPU per heartbeat, servers, ${crowd} at 1/s`, unit: 'µs' },
    { key: 'wholeBeatCpu', what: `CPU per heartbeat, servers and stores, ${crowd} at 1/s`, unit: 'µs' },
    { key: 'frozen', what: `process frozen → reported elsewhere, beside ${crowd}, p50`, unit: 'ms' },
    { key: 'frozenMost', what: `process frozen → reported elsewhere, beside ${crowd}, most`, unit: 'ms' },
    { key: 'killed', what: `process killed → reported elsewhere, beside ${crowd}, p50`, unit: 'ms' },
  ];
}

async function takeTurn(
  context: BenchContext,
  maker: SiteMaker,
  { sizes, onLost }: { sizes: Sizes; onLost: (count: number) => void },
): Promise<Turn> {
  const site = await maker.start(context);
  const crowds: Crowd[] = [];
  const startCrowd = async (name: string): Promise<Crowd> => {
    const crowd = await site.startCrowd(name);
    crowds.push(crowd);
    return crowd;
  };
  try {
    const crowd = await startCrowd('crowd');
    const coming = await measureComing(site, crowd, sizes);
    await clock.sleep(sizes.settleMs, context.signal);
    const staying = await measureStaying(site, crowd, { ...sizes, name: maker.name });
    const frozen = await measureLoss(site, await startCrowd('frozen'), { ...sizes, signal: 'SIGSTOP', look: FROZEN });
    const killed = await measureLoss(site, await startCrowd('killed'), { ...sizes, signal: 'SIGKILL', look: KILLED });
    onLost((await crowd.beats()).lost);
    const [silent, closed] = [summarize(frozen), summarize(killed)];
    return { ...coming, ...staying, frozen: silent.median, frozenMost: silent.max, killed: closed.median };
  } finally {
    await Promise.all(crowds.map(({ helper }) => helper.stop()));
    await site.stop();
  }
}

async function measureComing(site: Site, crowd: Crowd, { clients, perSecond }: Sizes): Promise<Turn> {
  const before = site.cpuMs();
  const { times } = await crowd.connect({ clients, perSecond, where: 'spread' });
  const after = site.cpuMs();
  if (times.length !== clients) throw new Error(`${times.length} clients came, not ${clients}`);
  const spentMs = after.servers - before.servers + after.stores - before.stores;
  return { connect: summarize(times).median, connectCpu: spentMs / clients };
}

async function measureStaying(
  site: Site,
  crowd: Crowd,
  { clients, windowMs, name }: Sizes & { name: string },
): Promise<Turn> {
  const look = async () => ({ answered: (await crowd.beats()).answered, ...site.cpuMs() });
  const before = await look();
  await clock.sleep(windowMs);
  const after = await look();
  const beats = after.answered - before.answered;
  const due = (clients * windowMs) / 1000;
  if (beats < due * LEAST_BEATS) throw new Error(`${name}: ${beats} heartbeats went both ways, and ${due} were due`);
  const servers = after.servers - before.servers;
  const stores = after.stores - before.stores;
  return { beatCpu: (servers * 1000) / beats, wholeBeatCpu: ((servers + stores) * 1000) / beats };
}

/** The victims' process gets the signal at a random time within their heartbeat period. */
async function measureLoss(
  site: Site,
  crowd: Crowd,
  { victims, perSecond, signal, look }: Sizes & { signal: 'SIGSTOP' | 'SIGKILL'; look: Look },
): Promise<number[]> {
  const { ids } = await crowd.connect({ clients: victims, perSecond, where: 'first' });
  await clock.sleep(1_500 + systemRandom.fraction() * 1_000);
  const lostAt = machineMs();
  process.kill(crowd.helper.program.pid, signal);
  return (await site.goneAt(ids, look)).map((goneAt) => goneAt - lostAt);
}

function note(counts: Map<string, number>, name: string, count: number): void {
  if (count > 0) counts.set(name, (counts.get(name) ?? 0) + count);
}

function withLost(results: Result[], lost: ReadonlyMap<string, number>): Result[] {
  const last = results.at(-1);
  if (last === undefined) return results;
  const said = Array.from(lost, ([name, count]) => `${name} ${count}`).join(', ') || 'none';
  const notes = [...(last.notes ?? []), `connections of living clients that were lost, all turns together: ${said}`];
  return [...results.slice(0, -1), { ...last, notes }];
}
