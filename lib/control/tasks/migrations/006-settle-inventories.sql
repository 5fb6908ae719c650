-- Applies the decisions made at agents' inventories. Each applies only if the task is unchanged
-- since it was read, and only if the roster row still names the session. Skips locked rows. Returns
-- each task that it changed ('changed', or 'ended'), and 'locked' for each task that it skipped:
-- the task's row, its server's roster row, or what the task's end writes is locked.
create function cnapi_settle_inventories(
  p_run uuid, p_ids uuid[], p_servers uuid[], p_epochs bigint[], p_journals uuid[],
  p_attempts int[], p_cancels boolean[], p_actions text[], p_errors text[]
) returns table (id uuid, what text) language plpgsql volatile as $$
#variable_conflict use_column
declare
  free_servers uuid[];
  of_free_servers uuid[];
  free_tasks uuid[];
  moment timestamptz;
begin
  free_servers := array(
    select r.server_uuid from cnapi_roster_authority r
      where r.server_uuid = any (p_servers) order by r.server_uuid for share skip locked);
  of_free_servers := array(
    select t.id from cnapi_tasks t
      where t.id = any (p_ids) and t.server_uuid = any (free_servers));
  free_tasks := cnapi_lock_task_ends(of_free_servers);
  return query
    select t.id, 'locked' from cnapi_tasks t
      where t.id in (select i from unnest(p_ids) as i except select i from unnest(free_tasks) as i);
  moment := cnapi_now();
  return query
    with changed as (
      update cnapi_tasks t
        set state = case d.action
              when 'fail' then 'ended'
              when 'again' then 'queued' when 'again-uncertain' then 'queued'
              else t.state end,
            outcome = case d.action when 'fail' then 'failure' end,
            error = d.error::json,
            epoch = d.epoch,
            journal_id = d.journal_id,
            cancel_sent_at = null,
            uncertain = t.uncertain or d.action = 'again-uncertain',
            queued_at = case when d.action like 'again%' then moment else t.queued_at end,
            accepted_at = case when d.action like 'again%' then null
              else coalesce(t.accepted_at, moment) end,
            started_at = case when d.action like 'again%' then null
              when d.action = 'runs' then coalesce(t.started_at, moment) else t.started_at end,
            progress_at = case when d.action like 'again%' then null else t.progress_at end,
            progress = case when d.action like 'again%' then null else t.progress end,
            progress_seq = case when d.action like 'again%' then null else t.progress_seq end,
            kept_events = case when d.action like 'again%' then 0 else t.kept_events end,
            kept_bytes = case when d.action like 'again%' then 0 else t.kept_bytes end,
            last_seq = t.last_seq + case when d.action like 'again%' then 1 else 0 end
        from unnest(p_ids, p_servers, p_epochs, p_journals, p_attempts, p_cancels, p_actions,
              p_errors)
            as d (id, server_uuid, epoch, journal_id, attempt, is_cancelled, action, error)
          join cnapi_roster_authority r
            on r.server_uuid = d.server_uuid and r.run = p_run and r.epoch = d.epoch
        where t.id = d.id and t.server_uuid = d.server_uuid and t.state = 'claimed'
          and t.attempt = d.attempt and t.epoch < d.epoch
          and (t.cancel_requested_at is not null) = d.is_cancelled and t.id = any (free_tasks)
        returning t.id, t.state, t.attempt, t.last_seq, d.action
    ), noted as (
      insert into cnapi_task_events (task_id, seq, attempt, name, stored_at, data)
        select c.id, c.last_seq, c.attempt, 'retry', moment, json_build_object('reason',
            case c.action when 'again' then 'the server had not received it'
              else 'the server lost its record of the task, which may be run again' end)
          from changed c where c.action like 'again%'
    ), dropped as (
      delete from cnapi_task_events e using changed c
        where c.action like 'again%' and e.task_id = c.id and e.name in ('output', 'progress')
    )
    select c.id, case c.state when 'ended' then 'ended' else 'changed' end from changed c;
end $$;
