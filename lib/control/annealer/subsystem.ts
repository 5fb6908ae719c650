/** What the annealer contributes to an instance. */
import type { Bus } from '../../platform/bus/bus.ts';
import type { Logger } from '../../platform/log.ts';
import type { BucketStore } from '../../platform/moray/bucket-store.ts';
import type { Queryable } from '../../platform/postgres/database.ts';
import { readMigrations } from '../../platform/postgres/migration-files.ts';
import type { Random } from '../../platform/random.ts';
import type { Clock } from '../../platform/time/clock.ts';
import { documentRoutes } from '../documents/routes/document-routes.ts';
import type { Servers } from '../servers/servers.ts';
import type { Subsystem, SubsystemDefinition } from '../subsystem.ts';
import type { Tasks } from '../tasks/tasks.ts';
import { Annealer } from './annealer.ts';
import { AnnealerRunner } from './annealer-runner.ts';
import { Definitions } from './definitions.ts';
import { ANNEALER_DUTY } from './noderole-store.ts';
import { noderoleRoutes } from './routes/noderole-routes.ts';
import { deleteEndedNoderoleRuns } from './run-store.ts';
import type { AnnealerSettings } from './settings.ts';

interface AnnealerParts {
  database: Queryable;
  buckets: BucketStore;
  bus: Bus;
  clock: Clock;
  random: Random;
  log: Logger;
  tasks: Tasks;
  servers: Servers;
  duties: { offer(): void };
  config: AnnealerSettings;
}

const KEEP_DAYS = 30;
const DELETE_BATCH = 1_000;

export const annealerSubsystem: SubsystemDefinition<AnnealerParts> = {
  // They need the duties and the tasks.
  migrations: readMigrations('annealer', import.meta.dirname),
  open(parts): Subsystem {
    const definitions = new Definitions(parts);
    const runner = new AnnealerRunner({ ...parts, definitions });
    const annealer = new Annealer({ ...parts, definitions, offerDuties: () => parts.duties.offer() });
    return {
      name: 'annealer',
      prepare: () => definitions.prepare(),
      routes: [
        ...documentRoutes(definitions.roles),
        ...documentRoutes(definitions.deployments),
        ...noderoleRoutes({ annealer }),
      ],
      start: () => runner.start(),
      stop: async () => runner.stop(),
      dutyHandlers: { [ANNEALER_DUTY]: runner },
      metrics: [
        {
          kind: 'labelled gauge',
          name: 'noderoles',
          help: 'Noderoles of the whole zone by state; every instance reports the same numbers',
          label: 'state',
          fetch: () => annealer.counts(),
        },
      ],
      chores: [
        {
          name: 'old runs of noderoles',
          batch: () => deleteEndedNoderoleRuns(parts.database, KEEP_DAYS, DELETE_BATCH),
        },
      ],
    };
  },
};
