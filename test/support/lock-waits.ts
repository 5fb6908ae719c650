/**
 * Forced interleavings on real Postgres. A third session holds a row locked. The statements under
 * test queue behind it in a known order: each is seen waiting before the next one starts. Then the
 * lock is released. Under READ COMMITTED each statement then sees what it would see on a busy
 * database.
 */
import pg from 'pg';
import type { Queryable } from '../../lib/platform/postgres/database.ts';
import { until } from './until.ts';

export interface Leg<Result> {
  name: string;
  run(): Promise<Result>;
}

/**
 * Runs `legs` in the given order behind a lock taken by `lockSql` (a `select … for update`).
 * Resolves to their results in that order. A leg that does not wait (`skip locked`) simply
 * completes.
 */
export async function runBehindLock<Results extends unknown[]>(
  url: string,
  lockSql: string,
  legs: { [Index in keyof Results]: Leg<Results[Index]> },
): Promise<Results> {
  const holder = new pg.Client({ connectionString: url });
  const observer = new pg.Client({ connectionString: url });
  await Promise.all([holder.connect(), observer.connect()]);
  try {
    await holder.query('begin');
    await holder.query(lockSql);
    const running: Promise<unknown>[] = [];
    for (const leg of legs) {
      const waitingBefore = await countWaiting(observer);
      let isDone = false;
      const run = leg.run().finally(() => {
        isDone = true;
      });
      run.catch(() => {});
      running.push(run);
      await until(
        async () => isDone || (await countWaiting(observer)) > waitingBefore,
        'the statement to wait for the lock',
      );
    }
    await holder.query('commit');
    return (await Promise.all(running)) as Results;
  } finally {
    await Promise.all([holder.end(), observer.end()]);
  }
}

/** How many sessions of this database wait for a lock. */
export async function countWaiting(observer: pg.Client | Queryable): Promise<number> {
  const { rows } = await (observer as Queryable).query<{ waiting: number }>(
    `select count(*)::int as waiting from pg_stat_activity
     where datname = current_database() and wait_event_type = 'Lock'`,
  );
  return rows[0]?.waiting ?? 0;
}
