/** What the status history says of a stretch of time. */
import type { Zone } from './zone.ts';

/** To count from. */
export async function lastChange(zone: Zone): Promise<number> {
  const [row] = await zone.sql<{ id: string | null }>('select max(id) as id from cnapi_status_history');
  return Number(row?.id ?? 0);
}

/** Servers that were said to be unknown after that change. */
export async function countUnknown(zone: Zone, after: number): Promise<number> {
  const [row] = await zone.sql<{ count: number }>(
    `select count(distinct server_uuid)::int as count from cnapi_status_history where id > $1 and status = 'unknown'`,
    [after],
  );
  return row?.count ?? 0;
}
