-- Records heartbeats as cnapi_record_legacy_heartbeats does. A row that only Ur keeps `running` (reason 'ur-sysinfo',
-- lib/control/ur) becomes the legacy agent's, which receives the server's tasks from now on. Its epoch rises, so that a
-- silence of Ur finds another row. The locks have the same order: rows of the roster come last, in key order.
create function cnapi_record_heartbeats(by_uuid uuid, servers uuid[], ages_ms bigint[])
returns table (of_server uuid, row_epoch bigint, record bigint, came_back boolean)
language plpgsql as $$
declare
  by_ur uuid[];
begin
  for of_server, row_epoch, record, came_back in
    select * from cnapi_record_legacy_heartbeats(by_uuid, servers, ages_ms)
  loop
    return next;
  end loop;
  if not exists (
    select 1 from cnapi_roster_authority row
    where row.server_uuid = any (servers) and row.run is null and row.reason = 'ur-sysinfo'
  ) then
    return;
  end if;

  by_ur := array(
    select row.server_uuid from cnapi_roster_authority row
    where row.server_uuid = any (servers) and row.status = 'running' and row.run is null
      and row.reason = 'ur-sysinfo'
    order by row.server_uuid for update of row);
  update cnapi_roster_authority row
  set reason = 'legacy-heartbeat', epoch = row.epoch + 1, decided_by = by_uuid
  where row.server_uuid = any (by_ur);
end $$;
