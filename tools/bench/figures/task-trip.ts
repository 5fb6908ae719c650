/**
 * The latency of a workflow job: POST of a task at one instance, the agent at a second one, the
 * wait for its end at a third. The agents are real, with journals on disk; the trips run one after
 * the other. The wait is requested when the POST is answered.
 */
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import { BenchCaller } from '../caller.ts';
import type { BenchContext, Figure, Result } from '../figure.ts';
import type { Floors } from '../floors.ts';
import { summarize } from '../statistics.ts';
import { runTask, type TaskRoute } from '../tasks.ts';
import type { Zone } from '../zone.ts';

export const taskTrip: Figure = {
  name: 'task-trip',
  says: 'a task from POST to the answer of its wait, through three instances',
  seconds: 30,
  isOnFloors: true,
  measure,
};

const AGENTS = 3;

async function measure({ isQuick, startZone, floors }: BenchContext): Promise<readonly Result[]> {
  const zone = await startZone();
  await zone.addAgents(AGENTS);
  const routes = await routesOf(zone);
  using caller = new BenchCaller();
  const [warmUp, trips] = isQuick ? [20, 50] : [300, 1_000];
  await travel(caller, routes, warmUp);
  const { posts, wholes } = await travel(caller, routes, trips);
  const [post, whole] = [summarize(posts), summarize(wholes)];
  const rested = floorOf(floors, 'rested');
  return [
    {
      what: 'task round trip: POST on A, agent on B, wait on C, p50',
      value: whole.median,
      unit: 'ms',
      floor: { of: '2N + 3C + 3H + W + 2F', value: floorOf(floors, 'busy') },
      limit: { on: 'ratio', atMost: 2 },
      notes: [
        `POST answered p50 ${post.median.toFixed(2)} ms; round trip p90 ${whole.p90.toFixed(2)}, p99 ${whole.p99.toFixed(2)} ms; ` +
          `${whole.samples} nops, one after the other`,
        `beside the floor of parts that have rested (${rested.toFixed(2)} ms) ${(whole.median / rested).toFixed(2)} ×`,
      ],
    },
  ];
}

function floorOf(floors: Floors, pace: 'busy' | 'rested'): number {
  const [N, C, H, W, F] = (['N', 'C', 'H', 'W', 'F'] as const).map((key) => floors[key][pace].median);
  return 2 * (N ?? 0) + 3 * (C ?? 0) + 3 * (H ?? 0) + (W ?? 0) + 2 * (F ?? 0);
}

/** The two instances for each server that do not hold its agent. */
async function routesOf(zone: Zone): Promise<TaskRoute[]> {
  const rows = await zone.sql<{ server_uuid: string; cnapi_uuid: string }>(
    `select server_uuid, cnapi_uuid from cnapi_roster_authority where status = 'running'`,
  );
  return rows.map(({ server_uuid: serverUuid, cnapi_uuid }) => {
    const [poster, waiter] = zone.instances.filter(({ uuid }) => uuid !== cnapi_uuid);
    if (poster === undefined || waiter === undefined) throw new Error('the trip needs three instances');
    return { serverUuid, postUrl: poster.url, waitUrl: waiter.url };
  });
}

async function travel(caller: BenchCaller, routes: readonly TaskRoute[], trips: number) {
  const posts: number[] = [];
  const wholes: number[] = [];
  for (let trip = 0; trip < trips; trip++) {
    const startedAt = clock.now();
    posts.push(await runTask(caller, routes[trip % routes.length] as TaskRoute));
    wholes.push(clock.now() - startedAt);
  }
  return { posts, wholes };
}
