/**
 * Migrations of legacy agents (docs/design/legacy-agents.md): their heartbeats, the
 * addresses from which they post, and the claim of the tasks that are posted to them.
 */
import { readMigrations } from '../../platform/postgres/migration-files.ts';

export const legacyMigrations = readMigrations('legacy', import.meta.dirname);
