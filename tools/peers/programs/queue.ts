/**
 * Common code of every queue's program. It is started twice, as in normal use of a queue: one
 * process calls, another one works. The job does nothing, but the worker counts its id, so that no
 * result includes work that was not done.
 */
import { systemRandom } from '../../../lib/platform/random.ts';
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import { answerQuestions } from '../../bench/asked.ts';
import { runLanes } from '../../bench/lanes.ts';

export interface QueuePlan {
  databaseUrl: string;
  redisUrl: string | undefined;
  /** Maximum number of jobs that the worker process runs at the same time. */
  concurrency: number;
  /** Callers are notified of ends; without it nothing is sent for them. */
  isEndAwaited: boolean;
  /** A variant from the peer's own documentation. */
  variant: string;
}

export interface Caller {
  /** Resolves when the queue has accepted the job. */
  add(id: string): Promise<unknown>;
  /** Adds the job and resolves when this process is notified of its end. */
  run(id: string): Promise<unknown>;
  /** Number of jobs without an end in the queue's own store. */
  countUnfinished(): Promise<number>;
}

export interface QueueProgram {
  startCaller(plan: QueuePlan): Promise<Caller>;
  /** Must call `work` for each job with its id. */
  startWorker(plan: QueuePlan, work: (id: string) => void): Promise<unknown>;
}

export interface Handled {
  runs: number;
  distinct: number;
}

export function serveQueue({ startCaller, startWorker }: QueueProgram): void {
  let caller: Caller | undefined;
  let dispatched = 0;
  let runs = 0;
  const handled = new Set<string>();
  const theCaller = (): Caller => {
    if (caller === undefined) throw new Error('startCaller comes first');
    return caller;
  };
  const dispatch = (how: 'add' | 'run') => {
    dispatched += 1;
    return theCaller()[how](systemRandom.uuid());
  };
  answerQuestions({
    async startCaller(plan: QueuePlan) {
      caller = await startCaller(plan);
    },
    async startWorker(plan: QueuePlan) {
      await startWorker(plan, (id) => {
        runs += 1;
        handled.add(id);
      });
    },
    /** Returns how long each job took, in ms, one after the other. */
    async trips({ seconds, restMs }: { seconds: number; restMs: number }): Promise<number[]> {
      const times: number[] = [];
      for (const until = clock.now() + seconds * 1000; clock.now() < until; ) {
        if (restMs > 0) await clock.sleep(restMs);
        const startedAt = clock.now();
        await dispatch('run');
        times.push(clock.now() - startedAt);
      }
      return times;
    },
    /** Returns jobs per second. */
    lanes: ({ inFlight, seconds, how }: { inFlight: number; seconds: number; how: 'add' | 'run' }): Promise<number> =>
      runLanes(inFlight, seconds, () => dispatch(how)),
    dispatched: (): number => dispatched,
    handled: (): Handled => ({ runs, distinct: handled.size }),
    unfinished: (): Promise<number> => theCaller().countUnfinished(),
  });
}
