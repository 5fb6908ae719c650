/**
 * The addresses from which servers' agents connected, as any instance saw them. Called by
 * agent-sources.ts.
 */

import type { Queryable } from '../../platform/postgres/database.ts';

export interface AgentSource {
  serverUuid: string;
  address: string;
}

/**
 * Per server. More means a machine that posts from everywhere, or somebody who posts in its name.
 */
const MAX_ADDRESSES = 8;

/**
 * Whether a server's sysinfo names the address as its agent's; agent-address.ts reads the same
 * keys.
 */
const IS_NAMED = `coalesce(crowded.address in (i.sysinfo ->> 'CN Agent IP', i.sysinfo ->> 'Admin IP')
  or exists (
    select 1 from jsonb_each(case jsonb_typeof(i.sysinfo -> 'Network Interfaces')
      when 'object' then i.sysinfo -> 'Network Interfaces' else '{}' end) as nic
    where nic.value ->> 'ip4addr' = crowded.address
  ), false)`;

/**
 * Stores addresses of servers that exist; returns those stored. Above the limit per server, the
 * addresses with the oldest last posts are deleted, but last of all the ones that its sysinfo
 * names. Tasks are sent only to those, and posts from elsewhere in the server's name must not push
 * them out.
 */
export async function recordSources(database: Queryable, posted: readonly AgentSource[]): Promise<AgentSource[]> {
  const servers = posted.map(({ serverUuid }) => serverUuid);
  const { rows } = await database.query<AgentSource>(
    `insert into cnapi_agent_sources (server_uuid, address, heard_at)
       select distinct heard.server_uuid, heard.address, cnapi_now()
         from unnest($1::uuid[], $2::text[]) as heard (server_uuid, address)
         where exists (select 1 from cnapi_servers server where server.uuid = heard.server_uuid)
         order by heard.server_uuid, heard.address
       on conflict (server_uuid, address) do update set heard_at = excluded.heard_at
       returning server_uuid as "serverUuid", address`,
    [servers, posted.map(({ address }) => address)],
  );
  // It waits for no row: an instance that stores addresses of the same servers may hold some.
  await database.query(
    `with surplus as (
       select * from (
         select crowded.server_uuid, crowded.address, crowded.heard_at, row_number() over (
             partition by crowded.server_uuid order by ${IS_NAMED} desc, crowded.heard_at desc, crowded.address
           ) as place
           from cnapi_agent_sources crowded left join cnapi_server_sysinfo i using (server_uuid)
           where crowded.server_uuid in (
             select server_uuid from cnapi_agent_sources where server_uuid = any ($1::uuid[])
               group by server_uuid having count(*) > $2::int)
       ) as ordered where place > $2::int
     ), unlocked as (
       select source.server_uuid, source.address from cnapi_agent_sources source
         join surplus using (server_uuid, address, heard_at)
         for update of source skip locked
     )
     delete from cnapi_agent_sources where (server_uuid, address) in (select server_uuid, address from unlocked)`,
    [servers, MAX_ADDRESSES],
  );
  return rows;
}

export async function readSources(database: Queryable, serverUuid: string): Promise<string[]> {
  const { rows } = await database.query<{ address: string }>(
    'select address from cnapi_agent_sources where server_uuid = $1::uuid',
    [serverUuid],
  );
  return rows.map(({ address }) => address);
}

/** Deletes the addresses whose last post was more than `days` ago. */
export async function deleteOldSources(database: Queryable, days: number, limit: number): Promise<number> {
  const { rowCount } = await database.query(
    `delete from cnapi_agent_sources where (server_uuid, address) in (
       select server_uuid, address from cnapi_agent_sources where heard_at < cnapi_now() - make_interval(days => $1::int)
       order by server_uuid, address limit $2::int for update skip locked)`,
    [days, limit],
  );
  return rowCount;
}
