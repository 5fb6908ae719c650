/**
 * SQL about servers that speak over Ur. Each function is one statement for many servers. Called by
 * `ur-consumer.ts` and `ur-silence-detector.ts`.
 */
import type { Queryable } from '../../platform/postgres/database.ts';

/** A server that is `running` by Ur, and its last message. */
export interface UrRow {
  serverUuid: string;
  epoch: number;
  message: number;
}

/** Counts a message of each server; returns those that it marked `running`. */
export async function recordMessages(
  database: Queryable,
  cnapiUuid: string,
  serverUuids: readonly string[],
): Promise<string[]> {
  const { rows } = await database.query<{ server_uuid: string }>(
    'select server_uuid from cnapi_record_ur_messages($1::uuid, $2::uuid[]) as server_uuid',
    [cnapiUuid, serverUuids],
  );
  return rows.map((row) => row.server_uuid);
}

/** At most `limit` rows, in order of uuid. */
export async function readUrRows(database: Queryable, limit: number): Promise<UrRow[]> {
  const { rows } = await database.query<UrRow>(
    `select row.server_uuid as "serverUuid", row.epoch, heard.message
       from cnapi_ur_servers heard join cnapi_roster_authority row using (server_uuid)
       where row.status = 'running' and row.run is null and row.reason = 'ur-sysinfo'
       order by row.server_uuid limit $1::int`,
    [limit],
  );
  return rows;
}

/** Marks `unknown` the servers whose epoch and last message are unchanged; returns them. */
export async function recordSilencesOfUr(
  database: Queryable,
  cnapiUuid: string,
  rows: readonly UrRow[],
): Promise<string[]> {
  const { rows: changed } = await database.query<{ server_uuid: string }>(
    'select server_uuid from cnapi_record_ur_silences($1::uuid, $2::uuid[], $3::bigint[], $4::bigint[]) as server_uuid',
    [
      cnapiUuid,
      rows.map(({ serverUuid }) => serverUuid),
      rows.map(({ epoch }) => epoch),
      rows.map(({ message }) => message),
    ],
  );
  return changed.map((row) => row.server_uuid);
}

/** Deletes the rows of servers that were removed, or have spoken otherwise for a month. */
export async function deleteOldUrServers(database: Queryable, limit: number): Promise<number> {
  const { rowCount } = await database.query(
    `delete from cnapi_ur_servers where server_uuid in (
       select heard.server_uuid from cnapi_ur_servers heard
       where heard.heard_at < cnapi_now() - interval '30 days'
         and not exists (select 1 from cnapi_roster_authority row
           where row.server_uuid = heard.server_uuid and row.status = 'running' and row.reason = 'ur-sysinfo')
       order by heard.server_uuid limit $1::int for update of heard skip locked)`,
    [limit],
  );
  return rowCount;
}
