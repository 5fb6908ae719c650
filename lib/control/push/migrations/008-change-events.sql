-- Each new state of a push job. Its nodes' states are not events: a job may have ten thousand.
create function cnapi_log_push_job_event() returns trigger language plpgsql as $$
begin
  perform cnapi_add_event('push_job', null, new.state_since,
    jsonb_build_object('id', new.id, 'status', coalesce(new.outcome, new.state),
      'node_count', new.node_count, 'actor', new.actor, 'organization', new.organization));
  return null;
end $$;

create trigger cnapi_log_insert after insert on cnapi_push_jobs
  for each row execute function cnapi_log_push_job_event();

create trigger cnapi_log_update after update on cnapi_push_jobs
  for each row when (old.state <> new.state) execute function cnapi_log_push_job_event();
