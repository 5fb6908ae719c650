/**
 * Migrations of tasks: the tables, the rules that the database itself enforces, and the functions
 * over several rows (law 5). The functions are VOLATILE, so each statement in them reads afresh.
 * They take the locks first (the roster row, then tasks by id, or `skip locked`), and read the time
 * once, after the locks. Only the stores call them.
 */
import { readMigrations } from '../../platform/postgres/migration-files.ts';

export const taskMigrations = readMigrations('tasks', import.meta.dirname);
