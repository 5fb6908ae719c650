/** Migrations of the audit. */
import { readMigrations } from '../../platform/postgres/migration-files.ts';

export const auditMigrations = readMigrations('audit', import.meta.dirname);
