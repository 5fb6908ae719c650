/**
 * What Chef's Push Jobs API contributes to an instance: its routes, and the signatures that were
 * received.
 */
import type { Logger } from '../../platform/log.ts';
import type { Database } from '../../platform/postgres/database.ts';
import { readMigrations } from '../../platform/postgres/migration-files.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { Events } from '../events/events.ts';
import { counter } from '../metrics/metric.ts';
import type { Organizations } from '../organizations/organizations.ts';
import type { PushJobs } from '../push/push-jobs.ts';
import type { Subsystem, SubsystemDefinition } from '../subsystem.ts';
import { AccessRechecker } from './feeds/access-rechecker.ts';
import { ChefFeeds } from './feeds/chef-feeds.ts';
import { OrphanedPushJobs } from './push-jobs/orphaned-push-jobs.ts';
import { type ChefRouteDeps, chefRoutes } from './routes/chef-routes.ts';
import { deleteOldSignatures } from './signatures/signature-store.ts';

interface ChefParts extends Omit<ChefRouteDeps, 'feeds' | 'sessions' | 'pushJobs' | 'organizations'> {
  organizations: Organizations;
  pushJobs: PushJobs;
  events: Events;
  roster: { sessions: { readonly size: number }; membership: { readonly run: string } };
  database: Database;
  clock: Clock;
  log: Logger;
}

const SIGNATURES_AT_ONCE = 5_000;

export const chefSubsystem: SubsystemDefinition<ChefParts> = {
  migrations: readMigrations('chef', import.meta.dirname),
  open({ roster, ...parts }): Subsystem {
    const sessions = {
      run: () => roster.membership.run,
      get size() {
        return roster.sessions.size;
      },
    };
    const access = new AccessRechecker(parts);
    const orphans = new OrphanedPushJobs(parts);
    const feeds = new ChefFeeds({ ...parts, access });
    return {
      name: 'chef',
      routes: chefRoutes({ ...parts, sessions, feeds }),
      start() {
        access.start();
        orphans.start();
      },
      stop: () => Promise.all([access.stop(), orphans.stop()]),
      chores: [
        { name: 'signatures of requests', batch: () => deleteOldSignatures(parts.database, SIGNATURES_AT_ONCE) },
      ],
      metrics: [
        counter(
          'chef_followers_refused_total',
          'Followers of feeds that were refused because they or their organization had too many',
          () => feeds.refused,
        ),
        counter(
          'chef_followers_unchecked_total',
          'Callers whose feeds were closed because their rights could not be checked for five minutes',
          () => access.unchecked,
        ),
      ],
    };
  },
};
