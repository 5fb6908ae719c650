-- Each change of a schedule by a caller, and each time that it has used up.
create function cnapi_log_push_schedule_event() returns trigger language plpgsql as $$
declare
  schedule cnapi_push_schedules := case tg_op when 'DELETE' then old else new end;
begin
  perform cnapi_add_event('push_schedule', null,
    case tg_op when 'DELETE' then cnapi_now() else schedule.updated_at end,
    jsonb_build_object('id', schedule.id,
      'status', case
        when tg_op = 'DELETE' then 'deleted'
        when schedule.next_at is null and schedule.queued_at is null then 'ended'
        when schedule.is_paused then 'paused'
        else 'active' end,
      'change', case
        when tg_op = 'INSERT' then 'created'
        when tg_op = 'DELETE' then 'deleted'
        when old.changes <> new.changes then 'changed'
        when old.is_paused <> new.is_paused then case when new.is_paused then 'paused' else 'resumed' end
        -- A run by a caller uses up no time.
        when old.next_at is not distinct from new.next_at
          and old.queued_at is not distinct from new.queued_at then 'run'
        else 'fired' end,
      'at', to_char(schedule.last_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
      'outcome', schedule.last_outcome, 'reason', schedule.last_reason,
      'job', case when schedule.last_outcome = 'started' then schedule.last_job end,
      'actor', schedule.actor,
      'changed_by', case when tg_op = 'UPDATE'
        and (old.changes <> new.changes or old.is_paused <> new.is_paused) then new.changed_by end));
  return null;
end $$;

create trigger cnapi_log_insert after insert on cnapi_push_schedules
  for each row execute function cnapi_log_push_schedule_event();

create trigger cnapi_log_update after update on cnapi_push_schedules
  for each row when (old.is_paused <> new.is_paused or old.changes <> new.changes
    or old.fired <> new.fired or old.last_at is distinct from new.last_at
    or old.last_outcome is distinct from new.last_outcome)
  execute function cnapi_log_push_schedule_event();

create trigger cnapi_log_delete after delete on cnapi_push_schedules
  for each row execute function cnapi_log_push_schedule_event();
