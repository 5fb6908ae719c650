/**
 * Migrations of push jobs: their tables and functions. They need the duties, the tasks and the
 * roster.
 */
import { readMigrations } from '../../platform/postgres/migration-files.ts';

export const pushMigrations = readMigrations('push', import.meta.dirname);
