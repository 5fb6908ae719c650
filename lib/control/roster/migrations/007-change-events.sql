-- The events of statuses and of instances. Another trigger writes a row of history for each change
-- of a status.
create function cnapi_log_status_event() returns trigger language plpgsql as $$
begin
  perform cnapi_add_event('status', new.server_uuid::text, new.since,
    jsonb_build_object('server_uuid', new.server_uuid, 'status', new.status,
      'previous', new.previous, 'reason', new.reason, 'cnapi_uuid', new.cnapi_uuid,
      'epoch', new.epoch));
  return null;
end $$;

create trigger cnapi_log_insert after insert on cnapi_status_history
  for each row execute function cnapi_log_status_event();

-- A renewed run is live from now on, although its instance started long ago.
create function cnapi_log_instance_event() returns trigger language plpgsql as $$
begin
  perform cnapi_add_event('instance', null,
    coalesce(new.ended_at, new.draining_since, cnapi_now()),
    jsonb_build_object('uuid', new.cnapi_uuid, 'run', new.run, 'url', new.url,
      'version', new.version,
      'state', case
        when new.state = 'dead' then new.end_reason
        when new.draining_since is not null then 'draining'
        else 'live' end));
  return null;
end $$;

create trigger cnapi_log_insert after insert on cnapi_instances
  for each row execute function cnapi_log_instance_event();

create trigger cnapi_log_update after update on cnapi_instances
  for each row
  when (old.state <> new.state or (old.draining_since is null) <> (new.draining_since is null))
  execute function cnapi_log_instance_event();
