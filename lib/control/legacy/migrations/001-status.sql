-- The heartbeats of legacy agents (docs/design/legacy-agents.md) that any instance received. They
-- are recorded together: each record is one row of `cnapi_legacy_heartbeats` with all servers of
-- one statement. A later record of a server has a higher id.
--
-- Records are only inserted, read by id, and removed at the end that nobody reads
-- (cnapi_fold_legacy_heartbeats). So a record costs the same however many were made while a
-- transaction kept an old snapshot (a dump does so for hours). A row per server that each heartbeat
-- updates does not: each statement would read all its dead versions.
--
-- `cnapi_status`, which has Triton's name, has one row per server. All statements about a
-- server lock it. It has the server's last heartbeat only when no record has it any more.
--
-- Two functions use this table and the roster's rows together (cnapi_record_legacy_heartbeats,
-- cnapi_record_legacy_silences). Both lock in one order: rows of cnapi_status, then documents of
-- servers, then rows of the roster, each in key order. They read what they decide on after that
-- (law 5).
--
-- A silence is a compare-and-set on the id of the server's last record, so no instance compares its
-- clock with another's. A heartbeat that a status change did not take into account always undoes
-- it. If only its heartbeats keep a server `running`, its roster row names no run.
create table cnapi_status (
  server_uuid uuid primary key,
  last_heartbeat timestamptz not null,
  cnapi_instance uuid not null,
  last_record bigint not null default 0
);

create table cnapi_legacy_heartbeats (
  id bigint generated always as identity primary key,
  cnapi_instance uuid not null,
  servers uuid[] not null,
  heard_at timestamptz[] not null
);

-- Records up to this id are removed, except for those that a locked row still needs. It is a
-- sequence because it has no dead rows.
create sequence cnapi_legacy_heartbeats_removed_seq minvalue 0 start 0;

-- The records that are not removed. Each is looked up by its id: a scan would read the dead rows.
-- (The planner expects ten values from an array, and a thousand from generate_series.)
create function cnapi_recent_legacy_records() returns setof cnapi_legacy_heartbeats language sql stable as $$
  select record.*
  from unnest(array(
      select generate_series(removed.last_value + 1, taken.last_value)
      from cnapi_legacy_heartbeats_removed_seq removed,
        cnapi_legacy_heartbeats_id_seq taken)) as number,
    lateral (select * from cnapi_legacy_heartbeats one where one.id = number offset 0) as record
$$;

-- When any instance last received a heartbeat of this server; null if none did.
create function cnapi_last_heartbeat(wanted uuid) returns timestamptz language sql stable as $$
  select greatest(
    (select status.last_heartbeat from cnapi_status status where status.server_uuid = wanted),
    (select max(record.heard_at[array_position(record.servers, wanted)])
     from cnapi_recent_legacy_records() record))
$$;

-- The same for many servers together, without those that have none.
create function cnapi_last_heartbeats(wanted uuid[])
returns table (server_uuid uuid, last_heartbeat timestamptz) language sql stable as $$
  select heard.server_uuid, max(heard.heard_at)
  from (
    select status.server_uuid, status.last_heartbeat as heard_at from cnapi_status status
    where status.server_uuid = any (wanted)
    union all
    select heartbeat.server_uuid, heartbeat.heard_at
    from cnapi_recent_legacy_records() record,
      unnest(record.servers, record.heard_at) as heartbeat (server_uuid, heard_at)
    where heartbeat.server_uuid = any (wanted)
  ) as heard
  group by heard.server_uuid
$$;
