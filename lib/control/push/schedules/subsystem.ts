/** What schedules of push jobs contribute to an instance. */
import { readMigrations } from '../../../platform/postgres/migration-files.ts';
import { counter } from '../../metrics/metric.ts';
import type { Subsystem, SubsystemDefinition } from '../../subsystem.ts';
import { expiryRecord } from '../expiry/expiry-record.ts';
import type { PushJobs } from '../push-jobs.ts';
import { pushScheduleRoutes } from './routes/schedule-routes.ts';
import type { SchedulerDeps } from './scheduler.ts';
import { PushSchedules } from './schedules.ts';

const KEEP_DAYS = 30;

export const scheduleSubsystem: SubsystemDefinition<
  SchedulerDeps & { pushJobs: PushJobs; config: { cnapiUuid: string } }
> = {
  // They need push jobs and the events.
  migrations: readMigrations('push-schedules', import.meta.dirname),
  open({ pushJobs, database, clock, random, log, config, servers }): Subsystem {
    const pushSchedules = new PushSchedules({ pushJobs, database, clock, random, log, config, servers });
    const records = expiryRecord(config.cnapiUuid);
    const stats = () => pushSchedules.scheduler.stats();
    return {
      name: 'push schedules',
      routes: pushScheduleRoutes({ pushSchedules, pushJobs, random }),
      start: () => pushSchedules.start(),
      stop: () => pushSchedules.stop(),
      metrics: [
        counter(
          'push_schedules_started_total',
          'Push jobs that this instance started at the time of a schedule',
          () => stats().started,
        ),
        counter(
          'push_schedules_passed_total',
          'Times of push schedules that this instance used up without a job: skipped, missed or refused',
          () => stats().passed,
        ),
        counter(
          'push_schedules_refused_total',
          'Of these, times whose job could not be created',
          () => stats().refused,
        ),
      ],
      chores: [
        { name: 'old push schedules', batch: () => pushSchedules.deleteOlderThan(KEEP_DAYS) },
        { name: 'old jobs of push schedules', batch: () => pushSchedules.deleteOldJobs(records) },
      ],
    };
  },
};
