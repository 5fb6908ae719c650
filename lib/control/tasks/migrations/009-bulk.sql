-- The same task for many servers, for subsystems whose work consists of tasks. They call these
-- functions in the transaction that changes their own rows, after they have locked these.

create function cnapi_create_tasks(
  p_ids uuid[], p_servers uuid[], p_name text, p_params json, p_timeout_ms int,
  p_idempotent boolean, p_actor text, p_summary text
) returns void language plpgsql volatile as $$
declare
  moment timestamptz := cnapi_now();
begin
  insert into cnapi_tasks (id, server_uuid, name, params, params_bytes, timeout_ms, idempotent,
      request_hash, created_at, queued_at, actor, summary)
    select t.id, t.server_uuid, p_name, p_params, octet_length(p_params::text), p_timeout_ms,
        p_idempotent, '', moment, moment, p_actor, p_summary
      from unnest(p_ids, p_servers) as t (id, server_uuid) order by t.id;
end $$;

-- Ends those that are queued, and requests the end of those that are claimed. Returns those that
-- are to be cancelled again: their rows are locked, for instance because a report is being stored.
create function cnapi_cancel_tasks(p_ids uuid[], p_error json, p_uncertain_error json)
returns uuid[] language plpgsql volatile as $$
declare
  picked uuid[];
begin
  picked := array(
    select t.id from cnapi_tasks t where t.id = any (p_ids) and (t.state || '') <> 'ended'
      order by t.id for update skip locked);
  update cnapi_tasks t
    set cancel_requested_at = coalesce(t.cancel_requested_at, cnapi_now()),
        state = case t.state when 'queued' then 'ended' else t.state end,
        outcome = case t.state when 'queued' then 'failure' end,
        error = case when t.state <> 'queued' then null
          when t.uncertain then p_uncertain_error else p_error end
    where t.id = any (picked) and (t.state || '') <> 'ended';
  return array(
    select t.id from cnapi_tasks t where t.id = any (p_ids) and (t.state || '') <> 'ended'
      except select unnest(picked));
end $$;

-- Locks this task if it has not ended. False: another session has locked it. For steps over many
-- tasks that have to know in advance which ones they can change.
create function cnapi_lock_task(p_id uuid) returns boolean language plpgsql volatile as $$
begin
  perform 1 from cnapi_tasks t where t.id = p_id and (t.state || '') <> 'ended'
    for update skip locked;
  return found or not exists (
    select 1 from cnapi_tasks t where t.id = p_id and (t.state || '') <> 'ended');
end $$;

-- How long these tasks may run from now on, counted as before; their agents are not told. Returns
-- those that are to be changed again: their rows are locked.
create function cnapi_change_timeouts(p_ids uuid[], p_timeouts_ms int[]) returns uuid[]
language plpgsql volatile as $$
declare
  picked uuid[];
begin
  picked := array(
    select t.id from cnapi_tasks t where t.id = any (p_ids) and (t.state || '') <> 'ended'
      order by t.id for update skip locked);
  update cnapi_tasks t set timeout_ms = c.timeout_ms
    from unnest(p_ids, p_timeouts_ms) as c (id, timeout_ms)
    where t.id = any (array[c.id]) and t.id = any (picked) and (t.state || '') <> 'ended';
  return array(
    select t.id from cnapi_tasks t where t.id = any (p_ids) and (t.state || '') <> 'ended'
      except select unnest(picked));
end $$;

-- How far a task is. `error_code`: why it failed; an error of its agent or of cnapi. `is_reported`:
-- its agent said that it has ended. Otherwise cnapi ended it, for one of the reasons
-- p_ends_of_cnapi, and its agent may still run it. For lateral joins: Postgres puts the look-up into
-- the statement, with `offset 0` by the key and not by an index of the tasks that have ended.
create function cnapi_progress_of_task(p_id uuid, p_ends_of_cnapi text[])
returns table (
  id uuid, has_started boolean, has_ended boolean, is_reported boolean, outcome text,
  error_code text, message text, exit_code int
) language sql stable as $$
  select t.id, t.started_at is not null, t.state = 'ended',
      t.state = 'ended' and coalesce(t.error::text, '') <> all (p_ends_of_cnapi), t.outcome,
      t.error->>'code', left(t.error->>'message', 500), t.exit_code
    from (select * from cnapi_tasks c where c.id = p_id offset 0) as t
$$;
