/**
 * SQL about the sysinfo of servers that have had no agent. Called by the consumer of Ur's messages.
 */
import type { Queryable } from '../../platform/postgres/database.ts';
import type { KeptSysinfo } from './server-store.ts';

/**
 * Stores the sysinfo of a server whose row, if any, has one of these reasons: it has had no agent.
 * The row is locked, so an agent that is connecting is seen. Returns whether it was stored.
 */
export async function storeSysinfoWithoutAgent(
  database: Queryable,
  { serverUuid, digest, sysinfo }: KeptSysinfo,
  reasons: readonly string[],
): Promise<boolean> {
  const { rowCount } = await database.query(
    `with existing as materialized (select s.uuid from cnapi_servers s where s.uuid = $1::uuid for key share of s),
       known as materialized (
         select r.reason from existing e join cnapi_roster_authority r on r.server_uuid = e.uuid for share of r)
     insert into cnapi_server_sysinfo as i (server_uuid, digest, sysinfo, stored_at)
     select e.uuid, $2::text, $3::jsonb, cnapi_now() from existing e
       where not exists (select from known where reason <> all ($4::text[]))
     on conflict (server_uuid) do update
       set digest = excluded.digest, sysinfo = excluded.sysinfo, stored_at = excluded.stored_at`,
    [serverUuid, digest, JSON.stringify(sysinfo), reasons],
    { name: 'store sysinfo without agent' },
  );
  return rowCount > 0;
}
