-- When each server's queue was last full, by the counter of deadlines.
create table cnapi_full_servers (
  server_uuid uuid primary key,
  tick bigint not null
) with (fillfactor = 50);

-- The queues of these servers are full now, or cannot be sent to their agents yet.
create function cnapi_record_full_servers(p_servers uuid[]) returns void
language plpgsql volatile as $$
begin
  -- A row that another instance is writing says the same.
  update cnapi_full_servers f set tick = cnapi_tick()
    where f.server_uuid = any (array(
      select s.server_uuid from cnapi_full_servers s
        where s.server_uuid = any (p_servers) and s.tick < cnapi_tick()
        order by s.server_uuid for update skip locked));
  insert into cnapi_full_servers (server_uuid, tick)
    select server_uuid, cnapi_tick() from unnest(p_servers) as server_uuid order by server_uuid
    on conflict (server_uuid) do nothing;
end $$;

-- Ends queued tasks that no agent took for p_start_by ticks, and claimed tasks that no agent
-- reported for p_overdue ticks beyond their timeout (ten times that while their server runs: first
-- its instance tells the agent to end them). Null: ends no tasks of that kind. Any instance calls
-- it; tasks that are locked, or whose ends write what is locked, are left for the next call.
--
-- The time to start counts only while the server has room. A running server is full while it holds
-- as many tasks, or bytes of params, as it may be given in one go. `cnapi_full_servers` stores when
-- it was last full, and its queue has the whole time from then on. Its instance notes the same of a
-- server whose link is slow, while bytes leave (`cnapi_record_full_servers`). Unaccepted bytes count
-- only while the agent accepts tasks: a server that takes nothing for p_start_by ticks counts as
-- stuck, not full.
create function cnapi_sweep_late_tasks(
  p_start_by bigint, p_overdue bigint,
  p_not_taken text, p_not_taken_again text, p_timed_out text, p_most int,
  p_most_claimed int, p_most_bytes bigint, p_most_held_bytes bigint,
  p_most_posts int, p_most_post_bytes bigint,
  p_has_room_for_posts boolean
) returns setof uuid language plpgsql volatile as $$
declare
  present bigint := cnapi_tick();
  full_servers uuid[];
  picked uuid[];
  due uuid[];
  part uuid[];
  place int := 1;
  next_place int;
  rounds int := 0;
begin
  full_servers := array(
    select waiting.server_uuid
      from (select distinct t.server_uuid from cnapi_tasks t
        where t.state = 'queued' and t.queued_tick < present - p_start_by) as waiting
      join cnapi_roster_authority r
        on r.server_uuid = waiting.server_uuid and r.status = 'running'
      cross join lateral cnapi_given_tasks(waiting.server_uuid, r.run is null) as has
      where case when r.run is null
        then has.tasks >= p_most_posts or has.bytes >= p_most_post_bytes
          or not p_has_room_for_posts
        else has.tasks >= p_most_claimed or has.bytes >= p_most_held_bytes
          or has.unaccepted_bytes >= p_most_bytes and has.unaccepted_since >= present - p_start_by
        end
      order by waiting.server_uuid);
  perform cnapi_record_full_servers(full_servers);

  picked := cnapi_lock_task_ends_up_to(array(
    select t.id from cnapi_tasks t
      where t.state = 'queued' and t.queued_tick < present - p_start_by
        and not t.server_uuid = any (full_servers)
        and not exists (select 1 from cnapi_full_servers f
          where f.server_uuid = t.server_uuid and f.tick >= present - p_start_by)
      order by t.id limit 20 * p_most), p_most);
  return query
    update cnapi_tasks t
      set state = 'ended', outcome = 'failure',
        error = (case when t.uncertain then p_not_taken_again else p_not_taken end)::json
      where t.id = any (picked) and t.state = 'queued'
        and t.queued_tick < present - p_start_by
      returning t.id;

  due := array(
    select t.id from cnapi_tasks t
      join cnapi_roster_authority r on r.server_uuid = t.server_uuid
      where t.state = 'claimed'
        and t.worked_tick < present - ceil(t.timeout_ms / 1000.0)
          - p_overdue * (case r.status when 'unknown' then 1 else 10 end)
      order by t.id limit 20 * p_most);
  picked := '{}';
  while place <= cardinality(due) and cardinality(picked) < p_most and rounds < 20 loop
    rounds := rounds + 1;
    next_place := place + p_most - cardinality(picked);
    part := cnapi_lock_task_ends(due[place:next_place - 1]);
    picked := picked || array(
      select t.id from cnapi_tasks t
        join cnapi_roster_authority r on r.server_uuid = t.server_uuid
        where t.id = any (part) and t.state = 'claimed'
          and t.worked_tick < present - ceil(t.timeout_ms / 1000.0)
            - p_overdue * (case r.status when 'unknown' then 1 else 10 end)
        order by t.id for share of r skip locked);
    place := next_place;
  end loop;
  return query
    update cnapi_tasks t set state = 'ended', outcome = 'failure', error = p_timed_out::json
      where t.id = any (picked) and t.state = 'claimed'
      returning t.id;
end $$;
