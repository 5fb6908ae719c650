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
import { AnnealerDocuments } from './annealer-documents.ts';
import { AnnealerRunner } from './annealer-runner.ts';
import { ANNEALER_DUTY } from './noderole-store.ts';
import { Noderoles } from './noderoles.ts';
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
  // The functions use those of duties and of tasks.
  migrations: readMigrations('annealer', import.meta.dirname),
  open(parts): Subsystem {
    const documents = new AnnealerDocuments(parts);
    const runner = new AnnealerRunner({ ...parts, documents });
    const noderoles = new Noderoles({ ...parts, documents, offerDuties: () => parts.duties.offer() });
    return {
      name: 'annealer',
      prepare: () => documents.prepare(),
      routes: [
        ...documentRoutes(documents.roles),
        ...documentRoutes(documents.deployments),
        ...noderoleRoutes({ noderoles }),
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
          fetch: () => noderoles.counts(),
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
