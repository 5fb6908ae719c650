/** Answers the route of the audit (lib/protocol/api/audit.ts). */
import { AUDIT_PAGE, auditContracts } from '../../../protocol/api/audit.ts';
import { bind, ok, type Route } from '../../http/route.ts';
import type { AuditLog } from '../audit-log.ts';
import { AUDIT_PAGE_BYTES } from '../audit-store.ts';
import { toAuditRecord } from './audit-view.ts';

export function auditRoutes({ audit }: { audit: Pick<AuditLog, 'list'> }): Route[] {
  return bind(
    auditContracts,
    {
      async ListAudit({ params }) {
        const { server: serverUuid, object_prefix: objectPrefix, request_id: requestId, ...rest } = params;
        const { limit = AUDIT_PAGE, ...others } = rest;
        const rows = await audit.list({ ...others, serverUuid, objectPrefix, requestId, limit });
        return ok(rows.map(toAuditRecord));
      },
    },
    // The records are in memory twice: as rows and as JSON.
    { ListAudit: { answerBytes: 2 * AUDIT_PAGE_BYTES } },
  );
}
