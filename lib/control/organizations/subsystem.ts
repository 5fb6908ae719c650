/** What organizations contribute to an instance. */
import type { Database } from '../../platform/postgres/database.ts';
import { readMigrations } from '../../platform/postgres/migration-files.ts';
import type { Subsystem, SubsystemDefinition } from '../subsystem.ts';
import type { Organizations } from './organizations.ts';
import { organizationRoutes } from './routes/organization-routes.ts';
import { deleteOldSignatures } from './signature-store.ts';

interface OrganizationParts {
  organizations: Organizations;
  database: Database;
}

const DELETE_BATCH = 5_000;

export const organizationsSubsystem: SubsystemDefinition<OrganizationParts> = {
  migrations: readMigrations('organizations', import.meta.dirname),
  open({ organizations, database }): Subsystem {
    return {
      name: 'organizations',
      prepare: () => organizations.prepare(),
      routes: organizationRoutes(organizations),
      chores: [
        { name: 'remains of organizations', batch: () => organizations.deleteOrphans() },
        { name: 'signatures of requests', batch: () => deleteOldSignatures(database, DELETE_BATCH) },
      ],
    };
  },
};
