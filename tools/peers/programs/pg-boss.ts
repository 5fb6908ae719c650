/** pg-boss: jobs in Postgres, and workers that poll; NOTIFY, which is enabled here, wakes them. */
import pg from 'pg';
import { PgBoss } from 'pg-boss';
import { DatabaseEnds } from './ends-from-database.ts';
import { type QueuePlan, serveQueue } from './queue.ts';

const QUEUE = 'nop';

serveQueue({
  async startCaller(plan) {
    const boss = await start(plan);
    await boss.createQueue(QUEUE, { notify: true });
    const ends = new DatabaseEnds(plan.databaseUrl);
    const when = `new.state = 'completed' and old.state <> 'completed'`;
    if (plan.isEndAwaited) await ends.start({ on: 'update on pgboss.job', when, id: `new.data->>'id'` });
    const pool = new pg.Pool({ connectionString: plan.databaseUrl, max: 1 });
    const add = (id: string) => boss.send(QUEUE, { id });
    return {
      add,
      run: (id) => Promise.all([ends.when(id), add(id)]),
      async countUnfinished() {
        const { rows } = await pool.query(
          `select count(*)::int as count from pgboss.job where name = $1 and state <> 'completed'`,
          [QUEUE],
        );
        return rows[0].count;
      },
    };
  },
  async startWorker(plan, work) {
    const boss = await start(plan);
    // A NOTIFY wakes each local worker. One worker with batches of 64 was no slower than 2, 4 or 8
    // workers with proportionally smaller batches.
    const options = { batchSize: plan.concurrency, burstWhenBatchFull: true };
    await boss.work<{ id: string }>(QUEUE, options, async (jobs) => {
      for (const { data } of jobs) work(data.id);
    });
  },
});

async function start({ databaseUrl }: QueuePlan): Promise<PgBoss> {
  const boss = new PgBoss({ connectionString: databaseUrl, useListenNotify: true });
  boss.on('error', (error) => console.error(error));
  boss.on('warning', (warning) => console.error(warning));
  return await boss.start();
}
