/** What the audit contributes to an instance. */

import type { Queryable } from '../../platform/postgres/database.ts';
import { readMigrations } from '../../platform/postgres/migration-files.ts';
import { counter } from '../metrics/metric.ts';
import type { Subsystem, SubsystemDefinition } from '../subsystem.ts';
import type { AuditLog } from './audit-log.ts';
import { deleteOldAudit } from './audit-store.ts';
import { auditRoutes } from './routes/audit-routes.ts';

const KEEP_DAYS = 400;
const DELETE_BATCH = 5_000;

export const auditSubsystem: SubsystemDefinition<{ audit: AuditLog; database: Queryable }> = {
  migrations: readMigrations('audit', import.meta.dirname),
  open({ audit, database }): Subsystem {
    return {
      name: 'audit',
      routes: auditRoutes({ audit }),
      stop: () => audit.stop(),
      metrics: [
        counter(
          'audit_dropped_total',
          'Outcomes of requests that could not be written to the audit',
          () => audit.dropped,
        ),
        counter(
          'audit_refusals_unkept_total',
          'Refused requests without a record of their own, because their caller was refused too often',
          () => audit.unkept,
        ),
      ],
      chores: [{ name: 'old audit', batch: () => deleteOldAudit(database, KEEP_DAYS, DELETE_BATCH) }],
    };
  },
};
