-- The servers that spoke over Ur (docs/design/ur.md). `message` counts what was received of a server. A silence is a
-- compare-and-set on it, so no instance compares its clock with another's.
create table cnapi_ur_servers (
  server_uuid uuid primary key,
  message bigint not null,
  heard_at timestamptz not null,
  cnapi_instance uuid not null
);

-- Counts a message of each of these servers, and marks `running` those that are not set up and had no agent: they have
-- no row, were removed, or were running by Ur before. Anybody who has the broker's password can send a message, and
-- what a server by Ur is to run goes to the broker. Returns the servers that it changed. Locks in the order cnapi_ur_servers, documents of servers, rows of the roster, each in key order;
-- each is read after it is locked (law 5). A server that is being removed gets no row.
create function cnapi_record_ur_messages(by_uuid uuid, servers uuid[])
returns setof uuid language plpgsql as $$
declare
  known uuid[];
  inserted uuid[];
begin
  insert into cnapi_ur_servers as heard (server_uuid, message, heard_at, cnapi_instance)
  select server.uuid, 1, cnapi_now(), by_uuid from cnapi_servers server
  where server.uuid = any (servers) order by server.uuid
  on conflict (server_uuid) do update
    set message = heard.message + 1, heard_at = excluded.heard_at, cnapi_instance = excluded.cnapi_instance;

  known := array(
    select server.uuid from cnapi_servers server
    where server.uuid = any (servers) and server.setup is not true
    order by server.uuid for key share of server);

  with opened as (
    insert into cnapi_roster_authority as row (server_uuid, epoch, status, reason, since, decided_by)
    select server_uuid, 1, 'running', 'ur-sysinfo', cnapi_now(), by_uuid
    from unnest(known) as server_uuid order by server_uuid
    -- Changes nothing, and locks the row.
    on conflict (server_uuid) do update set epoch = row.epoch where false
    returning row.server_uuid
  )
  select coalesce(array_agg(server_uuid), '{}') into inserted from opened;

  return query
    with changed as (
      update cnapi_roster_authority row
      set status = 'running', reason = 'ur-sysinfo', run = null, cnapi_uuid = null, epoch = row.epoch + 1,
        since = cnapi_now(), decided_by = by_uuid
      where row.server_uuid = any (known) and row.status = 'unknown' and row.reason in ('removed', 'ur-silent')
      returning row.server_uuid
    )
    select server_uuid from changed union all select unnest(inserted);
end $$;

-- Marks `unknown` the servers that are `running` by Ur under that epoch, and of which nothing was received since that
-- message. It never waits: a locked row is being changed by somebody with newer information. Returns what it changed.
create function cnapi_record_ur_silences(by_uuid uuid, servers uuid[], epochs bigint[], messages bigint[])
returns setof uuid language plpgsql as $$
declare
  silent uuid[];
begin
  select coalesce(array_agg(server_uuid), '{}') into silent from (
    select heard.server_uuid from cnapi_ur_servers heard
    join unnest(servers, messages) as silence (server_uuid, message) using (server_uuid)
    where heard.message = silence.message
    order by heard.server_uuid for update of heard skip locked
  ) as locked;

  select coalesce(array_agg(server_uuid), '{}') into silent from (
    select row.server_uuid from cnapi_roster_authority row
    join unnest(servers, epochs) as silence (server_uuid, epoch) using (server_uuid)
    where row.server_uuid = any (silent) and row.epoch = silence.epoch
      and row.status = 'running' and row.run is null and row.reason = 'ur-sysinfo'
    order by row.server_uuid for update of row skip locked
  ) as locked;

  return query
    update cnapi_roster_authority row
    set status = 'unknown', reason = 'ur-silent', since = cnapi_now(), decided_by = by_uuid
    where row.server_uuid = any (silent)
    returning row.server_uuid;
end $$;
