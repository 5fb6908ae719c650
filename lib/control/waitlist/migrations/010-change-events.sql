-- The event of each change of a status, and of each deletion before the end.
create function cnapi_log_ticket_event() returns trigger language plpgsql as $$
begin
  perform cnapi_add_event('ticket', new.server_uuid, new.updated_at,
    jsonb_build_object('uuid', new.uuid, 'server_uuid', new.server_uuid, 'scope', new.scope,
      'id', new.id, 'status', new.status));
  return null;
end $$;

create trigger cnapi_log_insert after insert on cnapi_waitlist_tickets
  for each row execute function cnapi_log_ticket_event();

create trigger cnapi_log_update after update on cnapi_waitlist_tickets
  for each row when (old.status <> new.status) execute function cnapi_log_ticket_event();

create function cnapi_log_ticket_deleted_event() returns trigger language plpgsql as $$
begin
  perform cnapi_add_event('ticket', old.server_uuid, cnapi_now(),
    jsonb_build_object('uuid', old.uuid, 'server_uuid', old.server_uuid, 'scope', old.scope,
      'id', old.id, 'status', 'deleted'));
  return null;
end $$;

-- The deletion of a ticket that had already ended, also by housekeeping, is not a change.
create trigger cnapi_log_delete after delete on cnapi_waitlist_tickets
  for each row when (old.status in ('queued', 'active'))
  execute function cnapi_log_ticket_deleted_event();
