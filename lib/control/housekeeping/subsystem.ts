/** What housekeeping contributes to an instance. It is opened last, after all that have chores. */

import type { Logger } from '../../platform/log.ts';
import type { Queryable } from '../../platform/postgres/database.ts';
import { readMigrations } from '../../platform/postgres/migration-files.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { Chore, Subsystem, SubsystemDefinition } from '../subsystem.ts';
import { Housekeeping } from './housekeeping.ts';

interface HousekeepingParts {
  database: Queryable;
  clock: Clock;
  log: Logger;
  /** Knows the chores of the subsystems that were opened before. */
  subsystemHost: { readonly chores: readonly Chore[] };
  /** Cron expression; default hourly. */
  schedule?: string;
}

export const housekeepingSubsystem: SubsystemDefinition<HousekeepingParts> = {
  migrations: readMigrations('housekeeping', import.meta.dirname),
  open({ subsystemHost, ...deps }): Subsystem {
    const housekeeping = new Housekeeping({ ...deps, chores: subsystemHost.chores });
    return { name: 'housekeeping', start: () => housekeeping.start(), stop: () => housekeeping.stop() };
  },
};
