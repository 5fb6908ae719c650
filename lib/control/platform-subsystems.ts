/** What the bus and the database contribute to an instance. */
import type { Bus, BusStats } from '../platform/bus/bus.ts';
import type { PostgresDatabase } from '../platform/postgres/pool.ts';
import type { WriteHealth } from '../platform/postgres/write-health.ts';
import { counter, gauge } from './metrics/metric.ts';
import type { Subsystem } from './subsystem.ts';

export function busSubsystem(bus: Bus): Subsystem {
  const stat = (key: keyof BusStats) => () => bus.stats()[key];
  return {
    name: 'bus',
    start: () => bus.start(),
    stop: () => bus.stop(),
    metrics: [
      gauge('bus_healthy', '1 while the bus carries messages', () => Number(bus.isHealthy())),
      counter('bus_published_total', 'Messages sent', stat('published')),
      counter('bus_received_total', 'Messages received', stat('received')),
      counter('bus_dropped_total', 'Messages that could not be sent or read', stat('dropped')),
      counter('bus_reconnects_total', 'Connections to the bus that were opened again', stat('reconnects')),
      gauge('bus_topics', 'Topics subscribed', stat('topics')),
    ],
  };
}

/** The lifecycle stops the database itself, last of all. */
export function databaseSubsystem(database: PostgresDatabase, writes: WriteHealth): Subsystem {
  return {
    name: 'check of writes',
    start: () => writes.start(),
    stop: () => writes.stop(),
    metrics: [
      gauge('database_connections', 'Connections to the database', () => database.stats.total),
      gauge('database_connections_idle', 'Connections of the pool that are idle', () => database.stats.idle),
      gauge('database_callers_waiting', 'Callers that wait for a connection of the pool', () => database.stats.waiting),
      gauge(
        'database_writable',
        '0 after a statement found the disk full or the database read-only, until a write succeeds',
        () => Number(writes.trouble === undefined),
      ),
    ],
  };
}
