/** What the waitlist contributes to an instance. */
import { readMigrations } from '../../platform/postgres/migration-files.ts';
import { counter, gauge } from '../metrics/metric.ts';
import type { Subsystem, SubsystemDefinition } from '../subsystem.ts';
import { ticketRoutes } from './routes/ticket-routes.ts';
import type { Waitlist } from './waitlist.ts';

const KEEP_DAYS = 30;
const LOCK_SECONDS = [0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14_400];

type WaitlistParts = Parameters<typeof ticketRoutes>[0] & { waitlist: Waitlist };

export const waitlistSubsystem: SubsystemDefinition<WaitlistParts> = {
  migrations: readMigrations('waitlist', import.meta.dirname),
  open({ waitlist, instanceLeaving }): Subsystem {
    return {
      name: 'waitlist',
      routes: ticketRoutes({ waitlist, instanceLeaving }),
      start: () => waitlist.start(),
      stop: () => waitlist.stop(),
      metrics: [
        gauge('waitlist_waits', 'Callers waiting for a ticket on this instance', () => waitlist.stats().waits),
        counter('waitlist_expired_total', 'Tickets that this instance found expired', () => waitlist.stats().expired),
        counter(
          'waitlist_defects_total',
          'Queues found with waiting tickets and no active one, and repaired; above 0 is a defect of cnapi',
          () => waitlist.stats().defects,
        ),
        counter(
          'waitlist_creates_refused_total',
          'Tickets that this instance did not accept because their queue or their server held too many',
          () => waitlist.stats().refusedCreates,
        ),
        {
          kind: 'histograms',
          histograms: {
            waitlist_wait_seconds: {
              help: 'Time that a ticket waited in its queue before it became active, for tickets that this instance activated',
              buckets: LOCK_SECONDS,
            },
          },
          take: async () => ({ waitlist_wait_seconds: await waitlist.recentWaits() }),
        },
      ],
      chores: [{ name: 'old tickets', batch: () => waitlist.deleteOlderThan(KEEP_DAYS) }],
    };
  },
};
