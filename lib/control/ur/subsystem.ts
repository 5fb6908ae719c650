/** What servers that speak Ur contribute to an instance. */
import type { Queryable } from '../../platform/postgres/database.ts';
import { readMigrations } from '../../platform/postgres/migration-files.ts';
import { checkBroker } from '../doctor/broker.ts';
import { counter, gauge } from '../metrics/metric.ts';
import type { Subsystem, SubsystemDefinition } from '../subsystem.ts';
import type { UrServers } from './ur-servers.ts';
import { deleteOldUrServers } from './ur-store.ts';

const DELETE_BATCH = 5_000;

export const urSubsystem: SubsystemDefinition<{ urServers: UrServers; database: Queryable }> = {
  migrations: readMigrations('ur', import.meta.dirname),
  checks: { amqp: checkBroker },
  open({ urServers, database }): Subsystem {
    const { consumer, posts, silences } = urServers;
    return {
      name: 'ur',
      start: () => urServers.start(),
      stop: () => urServers.stop(),
      metrics: [
        gauge('ur_broker_online', '1 while the AMQP broker can be used; 0 also without one', () =>
          Number(urServers.isOnline === true),
        ),
        counter(
          'ur_broker_connects_total',
          'Connections to the AMQP broker that were opened',
          () => urServers.connects,
        ),
        gauge('ur_servers', 'Servers that are running only because Ur says its sysinfo', () => silences.servers),
        counter('ur_silent_servers_total', 'Such servers that this instance found silent', () => silences.silent),
        counter('ur_messages_total', 'Messages of Ur that arrived', () => consumer.stats.received),
        counter('ur_messages_stored_total', 'Messages of Ur whose effect was stored', () => consumer.stats.stored),
        counter(
          'ur_messages_dropped_total',
          'Messages of Ur that could not be used; the log has the reasons',
          () => consumer.stats.dropped,
        ),
        counter(
          'ur_messages_ignored_total',
          'Messages of Ur about servers that are set up or had an agent',
          () => consumer.stats.ignored,
        ),
        counter(
          'ur_messages_replaced_total',
          'Messages of Ur that were not stored because their server said something newer',
          () => consumer.stats.replaced,
        ),
        gauge(
          'ur_messages_in_progress',
          'Messages of Ur that were received, and are neither stored nor dropped',
          () => consumer.unacknowledged,
        ),
        counter('ur_executions_total', 'Scripts and files that Ur was sent', () => posts.stats.runs),
        gauge(
          'ur_executions_in_progress',
          'Scripts and files for whose reply this instance waits',
          () => posts.stats.running,
        ),
        counter('ur_replies_late_total', 'Replies of Ur that nobody waited for', () => posts.stats.lateReplies),
      ],
      chores: [{ name: 'servers that spoke Ur', batch: () => deleteOldUrServers(database, DELETE_BATCH) }],
    };
  },
};
