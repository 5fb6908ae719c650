/** Reads from the status history which servers became unknown during a period. */
import type { Zone } from './zone.ts';

/** Returns the last entry, from which to count. */
export async function lastChange(zone: Zone): Promise<number> {
  const [row] = await zone.sql<{ id: string | null }>('select max(id) as id from cnapi_status_history');
  return Number(row?.id ?? 0);
}

/** Servers that became unknown after that entry, by their first reason. */
export interface Unknown {
  count: number;
  /** A text; empty when there are none. */
  reasons: string;
}

export async function readUnknown(zone: Zone, after: number): Promise<Unknown> {
  const rows = await zone.sql<{ reason: string; count: number }>(
    `select reason, count(*)::int as count from (
       select distinct on (server_uuid) reason from cnapi_status_history
       where id > $1 and status = 'unknown' order by server_uuid, id) as first
     group by reason order by count desc`,
    [after],
  );
  return {
    count: rows.reduce((total, { count }) => total + count, 0),
    reasons: rows.map(({ reason, count }) => `${count} ${reason}`).join(', '),
  };
}
