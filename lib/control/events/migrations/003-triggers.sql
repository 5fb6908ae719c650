-- The triggers that record changes as events. They take no lock that other transactions wait for,
-- and fail only if the database does.

-- Adds a change to the outbox. While no instance numbers it, it grows up to 100,000 rows; then a
-- row in `cnapi_event_misses` says that changes are missing. `p_at` is the time of the change
-- itself, if it has one, so that no further clock is read.
create function cnapi_add_event(p_kind text, p_server_uuid text, p_at timestamptz, p_body jsonb)
returns void language plpgsql volatile as $$
begin
  insert into cnapi_event_outbox (kind, server_uuid, stored_at, body)
    select p_kind, p_server_uuid, p_at, p_body
      from cnapi_event_moved_seq m, cnapi_event_outbox_id_seq s
      where s.last_value < m.last_value + 100000;
  if not found then
    insert into cnapi_event_misses (since)
      select cnapi_now() where not exists (select 1 from cnapi_event_misses);
  end if;
end $$;

-- The roster's own trigger writes a row of history for each change of a status.
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
