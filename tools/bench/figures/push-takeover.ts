/**
 * What the death of the instance that carries out a push job costs, in each of its phases: the time
 * from `kill -9` until another instance has the job, and the job's end. The killed instance has
 * just been added, so that few agents must reconnect; `instance-killed` measures that.
 */
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import { BenchCaller, expectStatus } from '../caller.ts';
import type { BenchContext, Figure, Result } from '../figure.ts';
import { isEnd, measureSlowness, type PushJobAnswer, postJob, readServers, startPushZone, untilJob } from '../push.ts';
import { number } from '../table.ts';
import type { Instance, Zone } from '../zone.ts';

export const pushTakeover: Figure = {
  name: 'push-takeover',
  says: 'kill -9 of the instance that carries out a push job of 2,000 servers, in each phase: until another one has it',
  seconds: 120,
  measure,
};

const WITHIN_S = 3;
const LOOK_MS = 20;
const GIVE_UP_MS = 60_000;

interface Phase {
  name: string;
  command: string;
  /** The instance is killed when this is so. */
  isReached: (job: PushJobAnswer) => boolean;
  hasAbort?: true;
}

const PHASES: readonly Phase[] = [
  { name: 'voting', command: 'true', isReached: ({ status }) => status === 'voting' },
  { name: 'running', command: 'sleep 1', isReached: ({ status }) => status === 'running' },
  { name: 'aborting', command: 'sleep 600', isReached: ({ status }) => status === 'running', hasAbort: true },
];

async function measure(context: BenchContext): Promise<readonly Result[]> {
  const nodes = context.isQuick ? 100 : Math.min(context.nodes, 2_000);
  const zone = await startPushZone(context, nodes);
  const servers = await readServers(zone);
  using caller = new BenchCaller();
  const slowness = await measureSlowness(zone);
  const results: Result[] = [];
  for (const phase of PHASES) {
    const alone = await carryOut(caller, zone, servers, phase);
    const victim = await zone.addInstance();
    const killed = await carryOut(caller, zone, servers, phase, victim);
    results.push({
      what: `coordinator killed while ${phase.name}, ${number(nodes)} nodes: another has the job after`,
      value: killed.takenOverS,
      unit: 's',
      limit: { on: 'value', atMost: WITHIN_S * slowness.factor },
      notes: [
        `killed at ${killed.killedAt}; the job took ${number(killed.wholeS)} s, without a kill ${number(alone.wholeS)} s; ${killed.end}`,
        slowness.says,
      ],
    });
  }
  return results;
}

interface Carried {
  wholeS: number;
  takenOverS: number;
  killedAt: string;
  end: string;
}

/** Posts the job at the victim, which then carries it out, and kills it. */
async function carryOut(
  caller: BenchCaller,
  zone: Zone,
  servers: readonly string[],
  { command, isReached, hasAbort }: Phase,
  victim?: Instance,
): Promise<Carried> {
  const other = zone.instances[0]?.url ?? '';
  const startedAt = clock.now();
  const { id } = await postJob(caller, { url: victim?.url ?? other, servers, command });
  if (hasAbort) {
    await untilJob(caller, { url: other, id }, ({ counts }) => counts.running === servers.length);
    expectStatus(await caller.put(`${other}/push-jobs/${id}/abort`), 202);
  }
  const reached = await untilJob(caller, { url: other, id }, isReached);
  const takenOverS = victim === undefined ? 0 : await killHolder(zone, id, victim);
  const job = await untilJob(caller, { url: other, id }, ({ status }) => isEnd(status));
  return {
    wholeS: (clock.now() - startedAt) / 1000,
    takenOverS,
    killedAt: `${reached.status} ${JSON.stringify(reached.counts)}`,
    end: `${job.status} ${JSON.stringify(job.counts)}`,
  };
}

/** Returns the seconds until another run holds the job. */
async function killHolder(zone: Zone, job: string, victim: Instance): Promise<number> {
  const holder = async () => {
    const [row] = await zone.sql<{ run: string | null }>('select run from cnapi_duties where id = $1', [job]);
    return row?.run ?? null;
  };
  const before = await holder();
  const [own] = await zone.sql<{ run: string }>(
    'select i.run from cnapi_instances i where i.cnapi_uuid = $1 order by i.started_at desc limit 1',
    [victim.uuid],
  );
  if (before === null || before !== own?.run) throw new Error(`push job ${job} is not carried out where it was posted`);
  const killedAt = clock.now();
  await zone.kill(victim);
  while (((await holder()) ?? before) === before) {
    if (clock.now() - killedAt > GIVE_UP_MS) throw new Error(`nobody takes push job ${job} over`);
    await clock.sleep(LOOK_MS);
  }
  return (clock.now() - killedAt) / 1000;
}
