/** Reads the status history that a trigger on the roster row keeps; deletes old entries. */
import type { Queryable } from '../../../platform/postgres/database.ts';
import type { StatusChange } from '../../../protocol/api/servers.ts';
import { STATUS_REASONS, type StatusReason } from './authority-row.ts';

interface StoredChange extends Omit<StatusChange, 'since' | 'message' | 'reason'> {
  reason: StatusReason;
  since: Date;
}

/** Newest first. */
export async function readStatusHistory(
  database: Queryable,
  serverUuid: string,
  { limit, offset }: { limit: number; offset: number },
): Promise<StatusChange[]> {
  const { rows } = await database.query<StoredChange>(
    `select status, previous, reason, since, cnapi_uuid, epoch from cnapi_status_history
     where server_uuid = $1::uuid order by id desc limit $2::int offset $3::int`,
    [serverUuid, limit, offset],
  );
  return rows.map(({ since, ...row }) => ({ ...row, message: STATUS_REASONS[row.reason], since: since.toISOString() }));
}

/** Deletes at most `limit` entries older than `days`; a server's newest entry stays. */
export async function deleteOldStatusHistory(database: Queryable, days: number, limit: number): Promise<number> {
  const { rowCount } = await database.query(
    `delete from cnapi_status_history where id in (
       select old.id from cnapi_status_history old
       where old.since < cnapi_now() - make_interval(days => $1::int)
         and exists (select 1 from cnapi_status_history later where later.server_uuid = old.server_uuid and later.id > old.id)
       order by old.id limit $2::int for update skip locked)`,
    [days, limit],
  );
  return rowCount;
}
