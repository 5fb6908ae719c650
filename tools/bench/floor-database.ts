/** A database with the product's tables for pgbench alone, on the Postgres that the zones use. */
import { migrations } from '../../lib/control/subsystem-list.ts';
import { silentLogger } from '../../lib/platform/log.ts';
import type { Queryable } from '../../lib/platform/postgres/database.ts';
import { migrate } from '../../lib/platform/postgres/migrations.ts';
import { PostgresDatabase } from '../../lib/platform/postgres/pool.ts';
import { systemClock as clock } from '../../lib/platform/time/clock.ts';
import type { BenchContext } from './figure.ts';
import { NoPgbenchError, runPgbench } from './pgbench.ts';

export interface PgbenchFloor extends AsyncDisposable {
  /** Returns scripts per second, after one second of warming up. */
  perSecond(seconds: number): Promise<number>;
  /** Why there is no floor; undefined when there is one. */
  reason: string | undefined;
}

export interface FloorPlan {
  clients: number;
  script: string;
  /** Prepares what the script needs in addition to the tables. */
  prepare?: (database: Queryable) => Promise<void>;
}

export async function prepareFloor(
  context: BenchContext,
  { clients, script, prepare }: FloorPlan,
): Promise<PgbenchFloor> {
  const { foundation, directory } = context;
  const url = await foundation.createDatabase();
  await using database = new PostgresDatabase({ url, applicationName: 'bench', log: silentLogger, clock });
  await migrate(database, migrations, { log: silentLogger });
  await prepare?.(database);
  const perSecond = (seconds: number) => runPgbench({ url, script, clients, seconds, directory });
  const reason = await perSecond(1).then(() => undefined, sayWhy);
  return { perSecond, reason, [Symbol.asyncDispose]: () => foundation.dropDatabase(url) };
}

/** Any error other than a missing program is a defect of the benchmark. */
function sayWhy(error: unknown): string {
  if (error instanceof NoPgbenchError) return error.message;
  throw error;
}
