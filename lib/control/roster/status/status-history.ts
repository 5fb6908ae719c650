/** Reads the status history that a trigger on the roster row keeps; deletes old entries. */
import type { Queryable } from '../../../platform/postgres/database.ts';
import type { ServerStatus } from '../../../protocol/api/servers.ts';
import { STATUS_REASONS, type StatusReason } from './authority-row.ts';

interface StoredChange {
  status: ServerStatus;
  previous: ServerStatus | null;
  reason: StatusReason;
  since: Date;
  cnapi_uuid: string | null;
  epoch: number;
}

/** `message`: the reason as a sentence. */
export interface StatusHistoryRow extends StoredChange {
  message: string;
}

/** Newest first. */
export async function readStatusHistory(
  database: Queryable,
  serverUuid: string,
  { limit, offset }: { limit: number; offset: number },
): Promise<StatusHistoryRow[]> {
  const { rows } = await database.query<StoredChange>(
    `select status, previous, reason, since, cnapi_uuid, epoch from cnapi_status_history
     where server_uuid = $1::uuid order by id desc limit $2::int offset $3::int`,
    [serverUuid, limit, offset],
  );
  return rows.map((row) => ({ ...row, message: STATUS_REASONS[row.reason] }));
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
