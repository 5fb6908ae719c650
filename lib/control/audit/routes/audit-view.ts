/** Records of the audit as admins see them. Pure. */
import { definedFields } from '../../../platform/defined-fields.ts';
import type { AuditRecord } from '../../../protocol/api/audit.ts';
import type { AuditRow } from '../audit-store.ts';

export function toAuditRecord({ details, ...row }: AuditRow): AuditRecord {
  return {
    ...row,
    time: row.time.toISOString(),
    ended_at: row.ended_at?.toISOString() ?? null,
    ...definedFields({ details }),
  };
}
