/** Migrations of what organizations keep beside their documents. */
import { readMigrations } from '../../platform/postgres/migration-files.ts';

export const organizationMigrations = readMigrations('organizations', import.meta.dirname);
