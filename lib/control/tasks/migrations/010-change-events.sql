-- The event of each change of a state.
create function cnapi_log_task_event() returns trigger language plpgsql as $$
begin
  perform cnapi_add_event('task', new.server_uuid::text,
    case new.state
      when 'queued' then new.queued_at when 'claimed' then new.claimed_at else new.ended_at end,
    jsonb_build_object('id', new.id, 'server_uuid', new.server_uuid, 'task', new.name,
      'status', case new.state
        when 'claimed' then 'active' when 'ended' then new.outcome else 'queued' end,
      'attempt', new.attempt));
  return null;
end $$;

create trigger cnapi_log_insert after insert on cnapi_tasks
  for each row execute function cnapi_log_task_event();

create trigger cnapi_log_update after update on cnapi_tasks
  for each row when (old.state <> new.state) execute function cnapi_log_task_event();
