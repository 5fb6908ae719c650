/** What organizations contribute to an instance. */
import { readMigrations } from '../../platform/postgres/migration-files.ts';
import type { Subsystem, SubsystemDefinition } from '../subsystem.ts';
import type { Organizations } from './organizations.ts';
import { organizationRoutes } from './routes/organization-routes.ts';

interface OrganizationParts {
  organizations: Organizations;
}

export const organizationsSubsystem: SubsystemDefinition<OrganizationParts> = {
  migrations: readMigrations('organizations', import.meta.dirname),
  open({ organizations }): Subsystem {
    return {
      name: 'organizations',
      prepare: () => organizations.prepare(),
      routes: organizationRoutes(organizations),
      chores: [{ name: 'remains of organizations', batch: () => organizations.deleteOrphans() }],
    };
  },
};
