-- Marks `unknown` the servers whose count of heartbeats has not moved since it was read, and that
-- are `running` by their heartbeats under that epoch. It never waits: a locked row is being changed
-- by somebody with newer information. A missing row of cnapi_status counts as zero. Returns the
-- servers that it changed.
create function cnapi_record_old_silences(
  by_uuid uuid, servers uuid[], epochs bigint[], counts bigint[]
) returns setof uuid language plpgsql as $$
declare
  unsighted uuid[];
begin
  insert into cnapi_status (server_uuid, last_heartbeat, cnapi_instance, sightings)
  select silence.server_uuid, cnapi_now(), by_uuid, 0
  from unnest(servers, counts) as silence (server_uuid, sightings)
  where silence.sightings = 0 order by silence.server_uuid
  on conflict do nothing;

  select coalesce(array_agg(server_uuid), '{}') into unsighted from (
    select status.server_uuid from cnapi_status status
    join unnest(servers, counts) as silence (server_uuid, sightings) using (server_uuid)
    where status.sightings = silence.sightings
    order by status.server_uuid for update of status skip locked
  ) as locked;

  select coalesce(array_agg(server_uuid), '{}') into unsighted from (
    select row.server_uuid from cnapi_roster_authority row
    join unnest(servers, epochs) as silence (server_uuid, epoch) using (server_uuid)
    where row.server_uuid = any (unsighted) and row.epoch = silence.epoch
      and row.status = 'running' and row.run is null
    order by row.server_uuid for update of row skip locked
  ) as locked;

  return query
    update cnapi_roster_authority row
    set status = 'unknown', reason = 'legacy-silent', since = cnapi_now(), said_by = by_uuid
    where row.server_uuid = any (unsighted)
    returning row.server_uuid;
end $$;
