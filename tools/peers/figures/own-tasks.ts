/**
 * cnapi's side of the task figures: POST at one instance, the agent at any, the wait at another
 * instance.
 */
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import { BenchCaller } from '../../bench/caller.ts';
import { cpuMsOf } from '../../bench/cpu.ts';
import type { BenchContext } from '../../bench/figure.ts';
import { runLanes } from '../../bench/lanes.ts';
import { postTask, runTask, type TaskRoute } from '../../bench/tasks.ts';
import type { Zone } from '../../bench/zone.ts';
import type { Side } from '../contest.ts';
import { storesCpuMs } from '../stores.ts';
import { type TakeTurn, untilDone, type Work } from './queues.ts';

export const OWN = 'cnapi';

/**
 * Real agents with journals on disk, as on separate servers; or a fleet of simulated agents without
 * journals.
 */
export type Agents = { real: number } | { simulated: number };

export async function startOwnTasks(
  context: BenchContext,
  { agents, take }: { agents: Agents; take: TakeTurn },
): Promise<Side> {
  const zone = await context.startZone();
  if ('real' in agents) await zone.addAgents(agents.real);
  else await zone.addFleet({ agents: agents.simulated });
  if ('simulated' in agents) await zone.untilKnown(agents.simulated);
  const work = workOf(context, zone, await routesOf(zone));
  const turn = async () => {
    const taken = await take(work);
    await untilDone(work);
    return taken;
  };
  return { name: OWN, take: turn };
}

function workOf(context: BenchContext, zone: Zone, routes: readonly TaskRoute[]): Work {
  const caller = new BenchCaller();
  const { instances, fleets, agents } = zone;
  const pids = [...instances.map(({ helper }) => helper.program), ...fleets, ...agents].map(({ pid }) => pid);
  let dispatched = 0;
  const dispatch = (how: 'add' | 'run') => {
    const route = routes[dispatched++ % routes.length] as TaskRoute;
    return how === 'run' ? runTask(caller, route) : postTask(caller, route);
  };
  return {
    name: OWN,
    async trips({ seconds, restMs }) {
      const times: number[] = [];
      for (const until = clock.now() + seconds * 1000; clock.now() < until; ) {
        if (restMs > 0) await clock.sleep(restMs);
        const startedAt = clock.now();
        await dispatch('run');
        times.push(clock.now() - startedAt);
      }
      return times;
    },
    lanes: ({ inFlight, seconds, how }) => runLanes(inFlight, seconds, () => dispatch(how)),
    cpuMs: () => cpuMsOf([process.pid, ...pids]) + storesCpuMs(context),
    async countUndone() {
      // Each state has its own index, so that ended tasks cost nothing.
      const [row] = await zone.sql<{ count: number }>(
        `select ((select count(*) from cnapi_tasks where state = 'queued') +
                 (select count(*) from cnapi_tasks where state = 'claimed'))::int as count`,
      );
      return row?.count ?? 0;
    },
    async tally() {
      const [row = { complete: 0, others: 0 }] = await zone.sql<{ complete: number; others: number }>(
        `select count(*) filter (where outcome = 'complete')::int as complete,
                count(*) filter (where outcome is distinct from 'complete')::int as others
           from cnapi_tasks`,
      );
      const handled = { runs: row.complete, distinct: row.complete };
      return { dispatched, handled, unfinished: row.others };
    },
  };
}

/** Two instances for each server that do not hold its agent. */
async function routesOf(zone: Zone): Promise<TaskRoute[]> {
  const rows = await zone.sql<{ server_uuid: string; cnapi_uuid: string }>(
    `select server_uuid, cnapi_uuid from cnapi_roster_authority where status = 'running'`,
  );
  return rows.map(({ server_uuid: serverUuid, cnapi_uuid }) => {
    const [poster, waiter] = zone.instances.filter(({ uuid }) => uuid !== cnapi_uuid);
    if (poster === undefined || waiter === undefined) throw new Error('this needs three instances');
    return { serverUuid, postUrl: poster.url, waitUrl: waiter.url };
  });
}
