/**
 * SQL about legacy agents' servers: records heartbeats and silences, and reads the servers that
 * only their heartbeats keep `running`. Each function is one statement for many servers. Called by
 * heartbeat-monitor.ts.
 */
import type { Queryable } from '../../platform/postgres/database.ts';
import type { HeartbeatRow, RecordedHeartbeat } from './legacy-servers.ts';

interface Heartbeat {
  serverUuid: string;
  /** How long ago the receiving instance received it. */
  ageMs: number;
}

/**
 * Leaves out servers that do not exist: no row is created for them. `heartbeats` is called when the
 * statement is sent: they grow older while it waits for a connection.
 */
export async function recordHeartbeats(
  database: Queryable,
  cnapiUuid: string,
  heartbeats: () => readonly Heartbeat[],
): Promise<RecordedHeartbeat[]> {
  const { rows } = await database.query<{
    of_server: string;
    row_epoch: number | null;
    record: number;
    came_back: boolean;
  }>('select * from cnapi_record_heartbeats($1::uuid, $2::uuid[], $3::bigint[])', () => {
    const sent = heartbeats();
    return [cnapiUuid, sent.map(({ serverUuid }) => serverUuid), sent.map(({ ageMs }) => Math.ceil(ageMs))];
  });
  return rows.map((row) => ({
    serverUuid: row.of_server,
    epoch: row.row_epoch,
    lastRecord: row.record,
    cameBack: row.came_back,
  }));
}

/**
 * Marks servers `unknown` if their epoch and their last record of heartbeats are unchanged. Returns
 * the servers that it changed.
 */
export async function recordSilences(
  database: Queryable,
  cnapiUuid: string,
  silences: readonly HeartbeatRow[],
): Promise<string[]> {
  const { rows } = await database.query<{ server_uuid: string }>(
    'select server_uuid from cnapi_record_legacy_silences($1::uuid, $2::uuid[], $3::bigint[], $4::bigint[]) as server_uuid',
    [
      cnapiUuid,
      silences.map(({ serverUuid }) => serverUuid),
      silences.map(({ epoch }) => epoch),
      silences.map(({ lastRecord }) => lastRecord),
    ],
  );
  return rows.map((row) => row.server_uuid);
}

/**
 * Returns at most `limit` rows, in order of uuid. The query groups instead of joining: the planner
 * cannot estimate the number of heartbeats, and might choose a nested loop.
 */
export async function readHeartbeatRows(database: Queryable, limit: number): Promise<HeartbeatRow[]> {
  const { rows } = await database.query<HeartbeatRow>(
    `select server_uuid as "serverUuid", max(epoch) as epoch, coalesce(max(record), 0) as "lastRecord" from (
       select server_uuid, epoch, null::bigint as record from cnapi_roster_authority
         where run is null and status = 'running' and reason <> 'ur-sysinfo'
       union all
       select server_uuid, null, last_record from cnapi_status
       union all
       select unnest(servers), null, id from cnapi_recent_legacy_records()
     ) as known
     group by server_uuid having max(epoch) is not null
     order by server_uuid limit $1::int`,
    [limit],
  );
  return rows;
}

/**
 * Removes the records up to this id, which a call some time before returned. What is read of the
 * servers does not change. Returns the id of the newest record, 0 if there is none.
 */
export async function deleteOldHeartbeats(database: Queryable, upTo: number): Promise<number> {
  const { rows } = await database.query<{ newest: number }>(
    'select cnapi_fold_legacy_heartbeats($1::bigint) as newest',
    [upTo],
  );
  return rows[0]?.newest ?? 0;
}

/** Deletes the heartbeat rows of servers that were removed over a day ago. */
export async function deleteOrphanedHeartbeats(database: Queryable, limit: number): Promise<number> {
  const { rowCount } = await database.query(
    `delete from cnapi_status where server_uuid in (
       select status.server_uuid from cnapi_status status
       where status.last_heartbeat < cnapi_now() - interval '1 day'
         and not exists (select 1 from cnapi_servers server where server.uuid = status.server_uuid)
         and not exists (select 1 from cnapi_roster_authority row
           where row.server_uuid = status.server_uuid and row.status = 'running')
       order by status.server_uuid limit $1::int for update of status skip locked)`,
    [limit],
  );
  return rowCount;
}
