/** Migrations of duties: the table and its functions. They need the instances of the roster. */
import { readMigrations } from '../../platform/postgres/migration-files.ts';

export const dutyMigrations = readMigrations('duty', import.meta.dirname);
