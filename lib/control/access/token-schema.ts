/** Migrations of access: the tokens. */
import { readMigrations } from '../../platform/postgres/migration-files.ts';

export const tokenMigrations = readMigrations('access', import.meta.dirname);
