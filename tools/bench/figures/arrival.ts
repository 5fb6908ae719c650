/**
 * More agents arrive than the zone can take: four times as many per second as it took just before,
 * of those that came all at once. Admission turns the surplus away and says when to return. What is
 * connected must stay connected, and in the end all must be. The agents share the machine with the
 * instances, so the rate itself is this machine's.
 */
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import type { BenchContext, Figure, Result } from '../figure.ts';
import { number } from '../table.ts';
import { lastChange, readUnknown } from '../unknown-servers.ts';
import type { Zone } from '../zone.ts';

export const arrival: Figure = {
  name: 'arrival',
  says: 'agents offered at four times the possible rate: how many sessions are lost, and the time until all are connected',
  seconds: 75,
  measure,
};

const SURPLUS = 4;
/** A count reads the whole roster: more often would be a load of its own. */
const LOOK_MS = 250;
/**
 * The agents offered would take this long at the possible rate, within bounds, because machines
 * differ.
 */
const POSSIBLE_SECONDS = 30;
const LEAST_OFFERED = 300;
const MOST_OFFERED = 6_000;
/**
 * The part of a crowd by which its rate is measured: the first and the last agents say little about
 * it.
 */
const COUNTED = { from: 0.1, to: 0.9 };
const DEFERRED = 'cnapi_link_upgrades_refused_total';

async function measure({ isQuick, startZone, signal, say }: BenchContext): Promise<readonly Result[]> {
  const zone = await startZone();
  const crowd = isQuick ? 100 : 600;
  const first = await watch(zone, signal, () => zone.addFleet({ agents: crowd, rate: crowd }));
  const possible = rateOf(first, crowd);
  const seconds = isQuick ? 2 : POSSIBLE_SECONDS;
  const offered = Math.ceil(Math.min(MOST_OFFERED, Math.max(LEAST_OFFERED, possible * seconds)));
  const rate = Math.ceil(SURPLUS * possible);
  say(`${number(possible)} agents a second are possible; offering ${number(offered)} at ${number(rate)} a second`);
  const before = await lastChange(zone);
  const startedAt = clock.now();
  const looks = await watch(zone, signal, () => zone.addFleet({ agents: offered, processes: 2, rate }));
  const tookS = (clock.now() - startedAt) / 1000;
  const unknown = await readUnknown(zone, before);
  const deferred = await countDeferred(zone);
  const all = crowd + offered;
  const dropPercent = 100 * largestDrop(looks);
  const load = `${number(offered)} agents at ${SURPLUS} × the possible rate`;
  return [
    {
      what: `${load}: most sessions lost at a time`,
      value: dropPercent,
      unit: '%',
      limit: { on: 'value', atMost: 1 },
      notes: [
        `by the roster's rows, read each ${LOOK_MS} ms, beside the most there had been; ${number(unknown.count)} servers were ever unknown`,
        `${number(deferred)} times an agent was told to return later`,
        ...(unknown.count === 0 ? [] : [unknown.reasons]),
      ],
    },
    {
      what: `${load}: all ${number(all)} connected after`,
      value: tookS,
      unit: 's',
      floor: { of: `at the possible rate, ${number(possible)} a second`, value: offered / possible },
      limit: { on: 'ratio', atMost: 2 },
    },
  ];
}

interface Look {
  at: number;
  running: number;
}

/** How many servers were running during `work`. */
async function watch(zone: Zone, signal: AbortSignal, work: () => Promise<void>): Promise<Look[]> {
  const looks: Look[] = [];
  const done = new AbortController();
  const working = work().finally(() => done.abort());
  // It is awaited below, after the last look.
  working.catch(() => undefined);
  const look = async () => looks.push({ at: clock.now(), running: await zone.countRunning() });
  while (!done.signal.aborted) {
    await look();
    await clock.sleep(LOOK_MS, signal);
  }
  await working;
  await look();
  return looks;
}

/** Arrivals per second while the middle part of the crowd came. */
function rateOf(looks: readonly Look[], count: number): number {
  const [start, end] = [COUNTED.from, COUNTED.to].map((share) => looks.find(({ running }) => running >= share * count));
  const last = looks.at(-1);
  const [from, to] = [start ?? last, end ?? last];
  if (from === undefined || to === undefined || to.at <= from.at) return count / ((LOOK_MS * 2) / 1000);
  return (1000 * (to.running - from.running)) / (to.at - from.at);
}

/** The share of sessions that were missing at the worst moment, of the most that there had been. */
function largestDrop(looks: readonly Look[]): number {
  let [most, worst] = [0, 0];
  for (const { running } of looks) {
    most = Math.max(most, running);
    worst = Math.max(worst, (most - running) / Math.max(1, most));
  }
  return worst;
}

async function countDeferred(zone: Zone): Promise<number> {
  let sum = 0;
  for (const { url } of zone.instances) {
    const text = await (await fetch(`${url}/metrics`)).text();
    for (const line of text.split('\n')) if (line.startsWith(DEFERRED)) sum += Number(line.split(' ').at(-1));
  }
  return sum;
}
