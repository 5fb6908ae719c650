-- Marks `unknown` the servers whose last record is still the one that was read (0: none), and that
-- are `running` by their heartbeats under that epoch. It never waits: a locked row is being changed
-- by somebody with newer information. Returns the servers that it changed.
create function cnapi_record_legacy_silences(
  by_uuid uuid, servers uuid[], epochs bigint[], records bigint[]
) returns setof uuid language plpgsql as $$
declare
  locked uuid[];
  kept_records bigint[];
  silent uuid[];
begin
  insert into cnapi_status (server_uuid, last_heartbeat, cnapi_instance)
  select silence.server_uuid, cnapi_now(), by_uuid
  from unnest(servers, records) as silence (server_uuid, record)
  where silence.record = 0 order by silence.server_uuid
  on conflict do nothing;

  select coalesce(array_agg(row.server_uuid), '{}'), coalesce(array_agg(row.last_record), '{}')
    into locked, kept_records
  from (
    select status.server_uuid, status.last_record from cnapi_status status
    where status.server_uuid = any (servers)
    order by status.server_uuid for update skip locked
  ) as row;

  -- Grouped instead of joined: the number of heartbeats cannot be estimated, and the planner may
  -- choose to compare each with each.
  select coalesce(array_agg(last.server_uuid), '{}') into silent from (
    select known.server_uuid from (
      select silence.server_uuid, silence.record as expected, null::bigint as record, false as is_locked
      from unnest(servers, records) as silence (server_uuid, record)
      union all
      select status.server_uuid, null, status.record, true
      from unnest(locked, kept_records) as status (server_uuid, record)
      union all
      select unnest(record.servers), null, record.id, false from cnapi_recent_legacy_records() record
    ) as known
    group by known.server_uuid
    having bool_or(known.is_locked) and max(known.expected) = max(known.record)
  ) as last;

  select coalesce(array_agg(server_uuid), '{}') into silent from (
    select row.server_uuid from cnapi_roster_authority row
    join unnest(servers, epochs) as silence (server_uuid, epoch) using (server_uuid)
    where row.server_uuid = any (silent) and row.epoch = silence.epoch
      and row.status = 'running' and row.run is null
    order by row.server_uuid for update of row skip locked
  ) as locked;

  return query
    update cnapi_roster_authority row
    set status = 'unknown', reason = 'legacy-silent', since = cnapi_now(), decided_by = by_uuid
    where row.server_uuid = any (silent)
    returning row.server_uuid;
end $$;
