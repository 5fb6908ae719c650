/**
 * What the database contributes to an instance: the check of writes, and the functions on which all
 * other migrations build.
 */
import { morayMigrations } from '../../platform/moray/moray-schema.ts';
import type { PostgresDatabase } from '../../platform/postgres/pool.ts';
import { type WriteHealth, writeCheckMigrations } from '../../platform/postgres/write-health.ts';
import { checkDatabase } from '../doctor/database.ts';
import { gauge } from '../metrics/metric.ts';
import type { Subsystem, SubsystemDefinition } from '../subsystem.ts';

interface DatabaseParts {
  database: PostgresDatabase;
  writes: WriteHealth;
}

/** The subsystem host stops the database itself, last of all. */
export const databaseSubsystem: SubsystemDefinition<DatabaseParts> = {
  migrations: [...morayMigrations, ...writeCheckMigrations],
  checks: { database: checkDatabase },
  open({ database, writes }): Subsystem {
    return {
      name: 'check of writes',
      start: () => writes.start(),
      stop: () => writes.stop(),
      metrics: [
        gauge('database_connections', 'Connections to the database', () => database.stats.total),
        gauge('database_connections_idle', 'Connections of the pool that are idle', () => database.stats.idle),
        gauge(
          'database_callers_waiting',
          'Callers that wait for a connection of the pool',
          () => database.stats.waiting,
        ),
        gauge(
          'database_writable',
          '0 after a statement found the disk full or the database read-only, until a write succeeds',
          () => Number(writes.failureReason === undefined),
        ),
      ],
    };
  },
};
