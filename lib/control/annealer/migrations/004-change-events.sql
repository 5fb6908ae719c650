-- Each new noderole, and each change of its state.
create function cnapi_log_noderole_event() returns trigger language plpgsql as $$
begin
  perform cnapi_add_event('noderole', new.server_uuid::text, new.state_since,
    jsonb_build_object('id', new.id, 'role', new.role, 'server_uuid', new.server_uuid,
      'deployment', new.deployment_id, 'state', new.state, 'blocked_by', new.blocked_by));
  return null;
end $$;

create trigger cnapi_log_insert after insert on cnapi_noderoles
  for each row execute function cnapi_log_noderole_event();

create trigger cnapi_log_update after update on cnapi_noderoles
  for each row when (old.state <> new.state or old.blocked_by is distinct from new.blocked_by)
  execute function cnapi_log_noderole_event();
