/**
 * Migrations of the roster: instances (one row per run, with its lease), authority and status (one
 * row per server), status history.
 */
import { readMigrations } from '../../platform/postgres/migration-files.ts';

export const rosterMigrations = readMigrations('roster', import.meta.dirname);
