-- Deletes everything stored for a server and removes its authority, in one transaction: a removal
-- happens completely or not at all. It takes its locks in the order document, parts, roster row. A
-- row that says `running` without a document is removed as well. Returns no row if there was
-- nothing to remove.
create function cnapi_remove_server(by_uuid uuid, removed_uuid uuid)
returns table (previous_run uuid, kept_epoch bigint) language plpgsql volatile as $$
declare
  had_document boolean;
  authority record;
begin
  delete from cnapi_servers where _key = removed_uuid::text;
  had_document := found;
  delete from cnapi_server_sysinfo where server_uuid = removed_uuid;
  delete from cnapi_server_reports where server_uuid = removed_uuid;
  perform cnapi_remove_vms(removed_uuid);
  select * into authority from cnapi_remove_authority(by_uuid, removed_uuid);
  if had_document or authority.was_running then
    return query select authority.previous_run, authority.kept_epoch;
  end if;
end $$;
