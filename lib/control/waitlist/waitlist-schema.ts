/**
 * Migrations of the waitlist: the tables, the rules that the database itself enforces, and the
 * operations. Only `ticket-store.ts` and `ticket-keys.ts` call the operations.
 */
import { readMigrations } from '../../platform/postgres/migration-files.ts';

export const waitlistMigrations = readMigrations('waitlist', import.meta.dirname);
