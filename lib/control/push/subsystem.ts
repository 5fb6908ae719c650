/** What push jobs contribute to an instance. */
import { counter } from '../metrics/metric.ts';
import type { Subsystem, SubsystemDefinition } from '../subsystem.ts';
import type { PushJobs } from './push-jobs.ts';
import { pushMigrations } from './push-schema.ts';
import { type PushJobRouteDeps, pushJobRoutes } from './routes/push-job-routes.ts';

const KEEP_DAYS = 30;

export const pushSubsystem: SubsystemDefinition<PushJobRouteDeps & { pushJobs: PushJobs }> = {
  migrations: pushMigrations,
  open({ pushJobs, servers, random }): Subsystem {
    return {
      name: 'push jobs',
      routes: pushJobRoutes({ pushJobs, servers, random }),
      start: () => pushJobs.start(),
      stop: () => pushJobs.stop(),
      metrics: [
        counter(
          'push_prepares_sent_total',
          'Agents that this instance asked to take part in a push job',
          () => pushJobs.courier.stats().prepares,
        ),
        counter(
          'push_aborts_sent_total',
          'Agents that this instance told to forget a push job',
          () => pushJobs.courier.stats().aborts,
        ),
        counter('push_votes_total', 'Votes of agents about push jobs', () => pushJobs.courier.stats().votes),
      ],
      chores: [{ name: 'old push jobs', batch: () => pushJobs.deleteOlderThan(KEEP_DAYS) }],
    };
  },
};
