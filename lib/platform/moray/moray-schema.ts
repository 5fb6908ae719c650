/** The migrations on which all other tables and statements build. */
import { readMigrations } from '../postgres/migration-files.ts';

export const morayMigrations = readMigrations('moray', import.meta.dirname);
