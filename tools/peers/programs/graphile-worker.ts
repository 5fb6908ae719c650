/** graphile-worker: jobs in Postgres, workers woken by NOTIFY. A finished job is deleted. */
import { Logger, makeWorkerUtils, run } from 'graphile-worker';
import pg from 'pg';
import { DatabaseEnds } from './ends-from-database.ts';
import { serveQueue } from './queue.ts';

const TASK = 'nop';
const silent = new Logger(() => () => undefined);

serveQueue({
  async startCaller({ databaseUrl, isEndAwaited }) {
    const pool = new pg.Pool({ connectionString: databaseUrl, max: 10 });
    const utils = await makeWorkerUtils({ pgPool: pool, logger: silent });
    await utils.migrate();
    const ends = new DatabaseEnds(databaseUrl);
    if (isEndAwaited) await ends.start({ on: 'delete on graphile_worker._private_jobs', id: `old.payload->>'id'` });
    const add = (id: string) => utils.addJob(TASK, { id });
    return {
      add,
      run: (id) => Promise.all([ends.when(id), add(id)]),
      async countUnfinished() {
        const { rows } = await pool.query('select count(*)::int as count from graphile_worker._private_jobs');
        return rows[0].count;
      },
    };
  },
  /**
   * The variant `batched` is the configuration of graphile-worker's own page on performance, except
   * for the concurrency.
   */
  startWorker: ({ databaseUrl, concurrency, variant }, work) =>
    run({
      connectionString: databaseUrl,
      concurrency,
      maxPoolSize: concurrency + 2,
      noHandleSignals: true,
      logger: silent,
      ...(variant === 'batched'
        ? { preset: { worker: { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 } } }
        : {}),
      taskList: { [TASK]: async (payload) => work((payload as { id: string }).id) },
    }),
});
