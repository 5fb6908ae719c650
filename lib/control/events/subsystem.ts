/** What the log of events contributes to an instance. */
import { readMigrations } from '../../platform/postgres/migration-files.ts';
import { counter, gauge } from '../metrics/metric.ts';
import type { Subsystem, SubsystemDefinition } from '../subsystem.ts';
import type { Events } from './events.ts';
import { eventRoutes } from './routes/event-routes.ts';

const KEEP_DAYS = 7;

type EventParts = Parameters<typeof eventRoutes>[0] & { events: Events };

export const eventsSubsystem: SubsystemDefinition<EventParts> = {
  migrations: readMigrations('events', import.meta.dirname),
  open(parts): Subsystem {
    const { events } = parts;
    return {
      name: 'events',
      routes: eventRoutes(parts),
      prepare: () => events.start(),
      endDrain: () => events.releaseFollowers(),
      stop: () => events.stop(),
      metrics: [
        gauge('events_followers', 'Callers following GET /events on this instance', () => events.stats().followers),
        counter('events_numbered_total', 'Events that this instance put into the log', () => events.stats().numbered),
        counter(
          'events_gaps_total',
          'Followers that this instance informed that events they had not read were already deleted',
          () => events.stats().gaps,
        ),
        gauge(
          'events_lag_seconds',
          'How long the oldest change of the last batch waited before this instance wrote it into the log: under a second while ' +
            'somebody follows, otherwise up to the period of the slow poll',
          () => events.stats().lagMs / 1000,
        ),
      ],
      chores: [{ name: 'old events', batch: () => events.deleteOlderThan(KEEP_DAYS) }],
    };
  },
};
