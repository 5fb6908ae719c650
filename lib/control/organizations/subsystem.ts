/** What organizations contribute to an instance. */

import type { Database } from '../../platform/postgres/database.ts';
import { readMigrations } from '../../platform/postgres/migration-files.ts';
import type { Random } from '../../platform/random.ts';
import type { Subsystem, SubsystemDefinition } from '../subsystem.ts';
import { ChefAuthentication } from './chef-authentication.ts';
import { organizationRoutes } from './organization-routes.ts';
import { Organizations } from './organizations.ts';
import { forgetSignatures } from './signature-store.ts';

interface OrganizationParts {
  organizations: Organizations;
  chefAuthentication: ChefAuthentication;
  database: Database;
}

const FORGET_BATCH = 5_000;

export function makeOrganizations({ database, random }: { database: Database; random: Random }) {
  const organizations = new Organizations({ database, random });
  return { organizations, chefAuthentication: new ChefAuthentication({ database, organizations }) };
}

export const organizationsSubsystem: SubsystemDefinition<OrganizationParts> = {
  migrations: readMigrations('organizations', import.meta.dirname),
  open({ organizations, chefAuthentication, database }): Subsystem {
    return {
      name: 'organizations',
      prepare: () => organizations.prepare(),
      routes: organizationRoutes({ organizations, chefAuthentication }),
      chores: [
        { name: 'remains of organizations', batch: () => organizations.deleteOrphans() },
        { name: 'signatures of requests', batch: () => forgetSignatures(database, FORGET_BATCH) },
      ],
    };
  },
};
