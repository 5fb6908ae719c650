/**
 * BullMQ: jobs in Redis, workers that block on it; callers are notified by its own event stream.
 */
import { Queue, QueueEvents, Worker } from 'bullmq';
import { Redis } from 'ioredis';
import { type QueuePlan, serveQueue } from './queue.ts';

const GIVE_UP_MS = 60_000;

serveQueue({
  async startCaller(plan) {
    const queue = new Queue(nameOf(plan), { connection: connect(plan) });
    const events = new QueueEvents(nameOf(plan), { connection: connect(plan) });
    await Promise.all([queue.waitUntilReady(), events.waitUntilReady()]);
    const add = (id: string) => queue.add('nop', { id });
    return {
      add,
      run: async (id) => (await add(id)).waitUntilFinished(events, GIVE_UP_MS),
      async countUnfinished() {
        const { completed, ...others } = await queue.getJobCounts();
        return Object.values(others).reduce((total, count) => total + count, 0);
      },
    };
  },
  async startWorker(plan, work) {
    const options = { connection: connect(plan), concurrency: plan.concurrency };
    const worker = new Worker<{ id: string }>(nameOf(plan), async ({ data }) => work(data.id), options);
    worker.on('error', (error) => console.error(error));
    await worker.waitUntilReady();
  },
});

/** One Redis serves the whole run; the database's name is new each time. */
const nameOf = ({ databaseUrl }: QueuePlan): string => new URL(databaseUrl).pathname.slice(1);

function connect({ redisUrl = '' }: QueuePlan): Redis {
  return new Redis(redisUrl, { maxRetriesPerRequest: null });
}
