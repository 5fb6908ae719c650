/** What push jobs for clients of Chef contribute to an instance: their routes. */
import type { Clock } from '../../platform/clock.ts';
import type { Logger } from '../../platform/log.ts';
import type { Database } from '../../platform/postgres/database.ts';
import type { Events } from '../events/events.ts';
import { counter } from '../metrics/metric.ts';
import { AccessRechecker } from '../organizations/access-rechecker.ts';
import type { Organizations } from '../organizations/organizations.ts';
import type { PushJobs } from '../push/push-jobs.ts';
import type { Subsystem, SubsystemDefinition } from '../subsystem.ts';
import { OrphanedJobs } from './orphaned-jobs.ts';
import { PushyFeeds } from './pushy-feeds.ts';
import { type PushyRouteDeps, pushyRoutes } from './routes/pushy-routes.ts';

interface PushyParts extends Omit<PushyRouteDeps, 'feeds' | 'sessions' | 'pushJobs' | 'organizations'> {
  organizations: Organizations;
  pushJobs: PushJobs;
  events: Events;
  roster: { sessions: { readonly size: number }; membership: { readonly run: string } };
  database: Database;
  clock: Clock;
  log: Logger;
}

export const pushySubsystem: SubsystemDefinition<PushyParts> = {
  open({ roster, ...parts }): Subsystem {
    const sessions = {
      run: () => roster.membership.run,
      get size() {
        return roster.sessions.size;
      },
    };
    const access = new AccessRechecker(parts);
    const orphans = new OrphanedJobs(parts);
    const feeds = new PushyFeeds({ ...parts, access });
    return {
      name: 'pushy',
      routes: pushyRoutes({ ...parts, sessions, feeds }),
      start() {
        access.start();
        orphans.start();
      },
      stop: () => Promise.all([access.stop(), orphans.stop()]),
      metrics: [
        counter(
          'pushy_followers_refused_total',
          'Followers of feeds that were refused because they or their organization had too many',
          () => feeds.refused,
        ),
        counter(
          'pushy_followers_unchecked_total',
          'Callers whose feeds were closed because their rights could not be checked for five minutes',
          () => access.unchecked,
        ),
      ],
    };
  },
};
