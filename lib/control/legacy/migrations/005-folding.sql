-- Removes the records up to `up_to`, in which every server that still posts has later ones. The
-- last heartbeats of the others are kept in their rows of cnapi_status; if such a row is locked,
-- its record is left for the next time. Returns the id of the newest record (0: none), for the next
-- call. Has no effect on what other statements read of a server.
--
-- What the previous call removed is excluded from reads only now: a statement whose snapshot is
-- older than its commit still needs it. Sequential scans are off, because they read dead rows.
create function cnapi_fold_legacy_heartbeats(up_to bigint) returns bigint
language plpgsql set enable_seqscan = off set jit = off as $$
declare
  oldest bigint;
  newest bigint;
  quiet uuid[];
  quiet_records bigint[];
  quiet_at timestamptz[];
  left_records bigint[];
  removable bigint[];
begin
  select min(record.id), coalesce(max(record.id), 0) into oldest, newest
  from cnapi_recent_legacy_records() record;
  if oldest is null or oldest > up_to then
    return newest;
  end if;
  perform setval('cnapi_legacy_heartbeats_removed_seq', oldest - 1);

  select coalesce(array_agg(last.server_uuid), '{}'), array_agg(last.record), array_agg(last.heard_at)
    into quiet, quiet_records, quiet_at
  from (
    select heartbeat.server_uuid, max(record.id) as record, max(heartbeat.heard_at) as heard_at
    from cnapi_recent_legacy_records() record,
      unnest(record.servers, record.heard_at) as heartbeat (server_uuid, heard_at)
    group by heartbeat.server_uuid having max(record.id) <= up_to
  ) as last;

  with locked as (
    select status.server_uuid, last.record, last.heard_at
    from unnest(quiet, quiet_records, quiet_at) as last (server_uuid, record, heard_at)
    join cnapi_status status on status.server_uuid = last.server_uuid
    order by status.server_uuid for no key update of status skip locked
  )
  update cnapi_status status
  set last_record = locked.record,
    last_heartbeat = greatest(status.last_heartbeat, locked.heard_at),
    cnapi_instance = (
      select record.cnapi_instance from cnapi_legacy_heartbeats record
      where record.id = locked.record)
  from locked
  where status.server_uuid = locked.server_uuid and status.last_record < locked.record;

  left_records := array(
    select distinct last.record from unnest(quiet, quiet_records) as last (server_uuid, record)
    join cnapi_status status on status.server_uuid = last.server_uuid
    where status.last_record < last.record);
  removable := array(
    select record.id from cnapi_recent_legacy_records() record
    where record.id <= up_to and record.id <> all (left_records));
  delete from cnapi_legacy_heartbeats where id in (
    select record.id from cnapi_legacy_heartbeats record where record.id = any (removable)
    order by record.id for update skip locked);
  return newest;
end $$;
