/**
 * Migrations of legacy agents (docs/design.md section 5, "Legacy agents"): their heartbeats, the
 * addresses from which they post, and the claim of the tasks that are posted to them.
 */
import { readMigrations } from '../../platform/postgres/migration-files.ts';

export const legacyMigrations = readMigrations('legacy', import.meta.dirname);
