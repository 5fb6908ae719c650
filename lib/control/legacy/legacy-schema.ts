/**
 * Migrations of legacy agents (docs/design.md section 5, "Legacy agents"): their heartbeats, and the
 * addresses from which they post.
 */
import { readMigrations } from '../../platform/postgres/migration-files.ts';

export const legacyMigrations = readMigrations('legacy', import.meta.dirname);
