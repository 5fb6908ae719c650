/** Migrations of the log of events, which the database itself keeps: tables, numbering, triggers. */
import { readMigrations } from '../../platform/postgres/migration-files.ts';

export const eventMigrations = readMigrations('events', import.meta.dirname);
