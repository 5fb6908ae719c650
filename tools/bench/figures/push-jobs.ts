/**
 * How long many push jobs of few servers take that do nothing and are posted at the same time, at
 * three instances: from the first POST until all are complete.
 */
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import { BenchCaller } from '../caller.ts';
import type { BenchContext, Figure, Result } from '../figure.ts';
import { measureSlowness, postJob, readServers, startPushZone } from '../push.ts';
import { FLOOR_OF, measureTasksFloor } from '../push-floor.ts';
import { number } from '../table.ts';
import type { Zone } from '../zone.ts';

export const pushJobs: Figure = {
  name: 'push-jobs',
  says: '1,000 push jobs of 10 servers that do nothing, posted at the same time: until all are complete',
  seconds: 150,
  measure,
};

const NODES_OF_JOB = 10;
const POSTS_IN_FLIGHT = 64;
const LOOK_MS = 100;
const GIVE_UP_MS = 180_000;

async function measure(context: BenchContext): Promise<readonly Result[]> {
  const nodes = context.isQuick ? 200 : context.nodes;
  const zone = await startPushZone(context, nodes);
  const servers = await readServers(zone);
  using caller = new BenchCaller();
  const slowness = await measureSlowness(zone);
  const groups = Array.from({ length: Math.floor(nodes / NODES_OF_JOB) }, (_, group) =>
    servers.slice(group * NODES_OF_JOB, (group + 1) * NODES_OF_JOB),
  );
  const startedAt = clock.now();
  await post(caller, zone, groups);
  const postedS = (clock.now() - startedAt) / 1000;
  const ends = await untilEnded(zone, groups.length, context.signal);
  return [
    {
      what: `${number(groups.length)} push jobs of ${NODES_OF_JOB} nodes: until all are complete`,
      value: (clock.now() - startedAt) / 1000,
      unit: 's',
      floor: { of: FLOOR_OF, value: await measureTasksFloor(context, groups.length * NODES_OF_JOB) },
      notes: [
        `all posted after ${number(postedS)} s, ${POSTS_IN_FLIGHT} in flight; they ended as ${ends}`,
        slowness.says,
      ],
    },
  ];
}

async function post(caller: BenchCaller, zone: Zone, groups: readonly string[][]): Promise<void> {
  let next = 0;
  const lane = async () => {
    for (let group = next++; group < groups.length; group = next++) {
      const url = zone.instances[group % zone.instances.length]?.url ?? '';
      await postJob(caller, { url, servers: groups[group] ?? [] });
    }
  };
  await Promise.all(Array.from({ length: POSTS_IN_FLIGHT }, lane));
}

/** Returns how they ended, and their nodes. */
async function untilEnded(zone: Zone, jobs: number, signal: AbortSignal): Promise<string> {
  for (const deadline = clock.now() + GIVE_UP_MS; clock.now() < deadline; await clock.sleep(LOOK_MS, signal)) {
    const [row] = await zone.sql<{ ended: number }>(
      `select count(*)::int as ended from cnapi_push_jobs where state = 'ended'`,
    );
    if (row?.ended === jobs) break;
  }
  const ends = await zone.sql<{ says: string }>(
    `select coalesce(outcome, state) || ' ' || count(*) as says from cnapi_push_jobs group by coalesce(outcome, state)
     union all select 'nodes ' || state || ' ' || count(*) from cnapi_push_nodes group by state`,
  );
  return ends.map(({ says }) => says).join(', ');
}
