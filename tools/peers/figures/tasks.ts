/**
 * Tasks compared with jobs of queues: from dispatch to the reported end, one at a time; many
 * callers that wait; and a backlog.
 */
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import type { BenchContext, Figure, Result } from '../../bench/figure.ts';
import { median } from '../../bench/statistics.ts';
import { compare, type Measure, takePairs, withAbsent } from '../contest.ts';
import { type Agents, OWN, startOwnTasks } from './own-tasks.ts';
import { IN_FLIGHT, startQueues, type TakeTurn, untilDone, type Work } from './queues.ts';

interface Plan {
  agents: Agents;
  isEndAwaited: boolean;
  take: TakeTurn;
  measures: readonly Measure[];
}

const REST_MS = 8;
const FLEET = { simulated: 100 };

export const taskTrips: Figure = {
  name: 'task-trips',
  says: 'one task after the other, from its dispatch until its end is reported, compared with graphile-worker, pg-boss, BullMQ',
  seconds: 160,
  measure: (context) => {
    const seconds = context.isQuick ? 0.5 : 2;
    return measure(context, {
      agents: { real: 3 },
      isEndAwaited: true,
      take: async (work) => ({
        busy: median(await work.trips({ seconds, restMs: 0 })),
        rested: median(await work.trips({ seconds, restMs: REST_MS })),
      }),
      measures: [
        { key: 'busy', what: 'dispatch to reported end, one after the other, p50', unit: 'ms' },
        { key: 'rested', what: `dispatch to reported end, one at a time after ${REST_MS} ms of rest, p50`, unit: 'ms' },
      ],
    });
  },
};

export const taskCallers: Figure = {
  name: 'task-callers',
  says: `tasks per second, ${IN_FLIGHT} callers that each wait for the end, compared with the same`,
  seconds: 150,
  measure: (context) => {
    const seconds = context.isQuick ? 0.5 : 4;
    return measure(context, {
      agents: FLEET,
      isEndAwaited: true,
      take: async (work) => {
        const before = await lookAt(work);
        const rate = await work.lanes({ inFlight: IN_FLIGHT, seconds, how: 'run' });
        return { rate, cpu: (await since(before, work)).cpuMsEach };
      },
      measures: [
        { key: 'rate', what: `done per second, ${IN_FLIGHT} callers that wait for the end`, unit: '/s' },
        { key: 'cpu', what: `CPU for each, all processes, ${IN_FLIGHT} callers that wait for the end`, unit: 'ms' },
      ],
    });
  },
};

export const taskBacklog: Figure = {
  name: 'task-backlog',
  says: `tasks per second, ${IN_FLIGHT} callers that wait for the acceptance only, until all are done, compared with the same`,
  seconds: 200,
  measure: (context) => {
    const seconds = context.isQuick ? 0.5 : 3;
    return measure(context, {
      agents: FLEET,
      isEndAwaited: false,
      take: async (work) => {
        const before = await lookAt(work);
        const accepted = await work.lanes({ inFlight: IN_FLIGHT, seconds, how: 'add' });
        await untilDone(work);
        const { perSecond, cpuMsEach } = await since(before, work);
        return { accepted, done: perSecond, cpu: cpuMsEach };
      },
      measures: [
        { key: 'accepted', what: `accepted per second, ${IN_FLIGHT} callers`, unit: '/s' },
        { key: 'done', what: 'done per second, until none is left', unit: '/s' },
        { key: 'cpu', what: 'CPU for each, all processes, until none is left', unit: 'ms' },
      ],
    });
  },
};

interface Look {
  at: number;
  cpuMs: number;
  dispatched: number;
}

async function lookAt(work: Work): Promise<Look> {
  const { dispatched } = await work.tally();
  return { dispatched, at: clock.now(), cpuMs: work.cpuMs() };
}

/** Results for what was dispatched since `before`. */
async function since(before: Look, work: Work): Promise<{ perSecond: number; cpuMsEach: number }> {
  const [at, cpuMs] = [clock.now(), work.cpuMs()];
  const count = (await work.tally()).dispatched - before.dispatched;
  return { perSecond: (count * 1000) / (at - before.at), cpuMsEach: (cpuMs - before.cpuMs) / count };
}

async function measure(context: BenchContext, { agents, isEndAwaited, take, measures }: Plan): Promise<Result[]> {
  const own = await startOwnTasks(context, { agents, take });
  const { sides, absent } = await startQueues(context, { isEndAwaited, take });
  const { rounds } = context;
  // The first turns warm up the code.
  for (const side of [own, ...sides]) await side.take();
  const pairs = await takePairs(own, sides, { rounds, say: (text) => context.say(`${OWN} and peers, ${text}`) });
  return withAbsent(compare(pairs, measures), absent);
}
