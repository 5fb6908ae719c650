-- Removes the authority for a removed server; its epoch stays. Locks the row, then reads it.
-- Returns nothing if there is no row. Called by `cnapi_remove_server`, which also deletes the
-- server's document.
create function cnapi_remove_authority(by_uuid uuid, removed_uuid uuid)
returns table (was_running boolean, previous_run uuid, kept_epoch bigint)
language plpgsql volatile as $$
declare
  found_row cnapi_roster_authority;
begin
  select * into found_row from cnapi_roster_authority where server_uuid = removed_uuid for update;
  if not found then
    return;
  end if;
  update cnapi_roster_authority
    set run = null, cnapi_uuid = null, status = 'unknown', reason = 'removed', decided_by = by_uuid,
      since = cnapi_now()
    where server_uuid = removed_uuid;
  return query select found_row.status = 'running', found_row.run, found_row.epoch;
end $$;
