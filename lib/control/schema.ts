/**
 * The migrations of all subsystems, in the order in which they are applied: those that come later
 * build on earlier ones.
 */
import { morayMigrations } from '../platform/moray/moray-schema.ts';
import type { Migration } from '../platform/postgres/migrations.ts';
import { writeCheckMigrations } from '../platform/postgres/write-health.ts';
import { tokenMigrations } from './access/token-schema.ts';
import { auditMigrations } from './audit/audit-schema.ts';
import { dutyMigrations } from './duty/duty-schema.ts';
import { eventMigrations } from './events/event-schema.ts';
import { housekeepingMigrations } from './housekeeping/housekeeping.ts';
import { legacyMigrations } from './legacy/legacy-schema.ts';
import { rosterMigrations } from './roster/roster-schema.ts';
import { serverMigrations } from './servers/server-schema.ts';
import { taskMigrations } from './tasks/task-schema.ts';
import { waitlistMigrations } from './waitlist/waitlist-schema.ts';

export const migrations: readonly Migration[] = [
  ...morayMigrations,
  ...rosterMigrations,
  ...legacyMigrations,
  ...serverMigrations,
  ...taskMigrations,
  ...waitlistMigrations,
  ...dutyMigrations,
  ...tokenMigrations,
  ...auditMigrations,
  ...eventMigrations,
  ...housekeepingMigrations,
  ...writeCheckMigrations,
];
