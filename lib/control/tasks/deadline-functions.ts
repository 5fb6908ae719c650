/**
 * The counter that measures deadlines of tasks (`deadline-counter.ts`), and the function that ends
 * overdue tasks. Called by `deadline-store.ts`, and by the tables' own triggers and defaults, so
 * tasks of an instance of an earlier version have ticks as well.
 *
 * The counter is a sequence: its value is read in one place and leaves no dead rows, however long a
 * snapshot is open. After a crash Postgres may continue up to 32 values later. This is harmless:
 * after an outage, sweeps wait for a whole deadline anyway.
 */

/**
 * `queued_tick`: when the task last joined its queue. `worked_tick`: when its attempt was claimed,
 * accepted or started.
 */
const ticks = `
create sequence cnapi_ticks;

create function cnapi_tick() returns bigint language plpgsql stable as $$
begin
  return (select last_value from cnapi_ticks);
end $$;

-- The lock is of the transaction, and nobody waits for it: whoever has it advances the counter.
create function cnapi_advance_ticks(p_seen bigint, p_by int) returns bigint language plpgsql volatile as $$
begin
  if p_by > 0 and pg_try_advisory_xact_lock(hashtextextended('cnapi_ticks', 0)) then
    if cnapi_tick() = p_seen then
      perform setval('cnapi_ticks', p_seen + p_by);
    end if;
  end if;
  return cnapi_tick();
end $$;

alter table cnapi_tasks add column if not exists queued_tick bigint;
alter table cnapi_tasks add column if not exists worked_tick bigint;
alter table cnapi_tasks alter column queued_tick set default cnapi_tick();
update cnapi_tasks set queued_tick = cnapi_tick() where state = 'queued';
update cnapi_tasks set worked_tick = cnapi_tick() where state = 'claimed';

create or replace function cnapi_tasks_guard() returns trigger language plpgsql as $$
begin
  if old.state = 'ended' then
    if new.state <> 'ended' or new.outcome <> old.outcome or new.attempt <> old.attempt then
      raise exception 'task % has ended and cannot change', old.id;
    end if;
  elsif new.attempt <> old.attempt + (case when old.state = 'queued' and new.state = 'claimed' then 1 else 0 end) then
    raise exception 'task %: attempt % cannot follow attempt %', old.id, new.attempt, old.attempt;
  elsif new.state = 'ended' then
    new.ended_at := cnapi_now();
    new.last_seq := new.last_seq + 1;
    insert into cnapi_task_events (task_id, seq, attempt, name, stored_at)
      values (new.id, new.last_seq, new.attempt, 'end', new.ended_at);
  elsif new.state = 'queued' then
    if old.state <> 'queued' then
      new.queued_tick := cnapi_tick();
    end if;
  elsif old.state = 'queued' or old.accepted_at is null and new.accepted_at is not null
      or old.started_at is null and new.started_at is not null then
    new.worked_tick := cnapi_tick();
  end if;
  return new;
end $$;
`;

/**
 * Ends queued tasks that no agent took for p_start_by ticks, and claimed tasks that no agent
 * reported for p_overdue ticks beyond their timeout (ten times that while their server runs: first
 * its instance tells the agent to end them). Null: ends no tasks of that kind.
 *
 * The time to start counts only while the server has room. A running server is full while it holds
 * as many tasks, or bytes of params, as it may be given at once. `cnapi_full_servers` stores when
 * it was last full, and its queue has the whole time from then on. Bytes count only while the agent
 * accepts tasks: a server that takes nothing for p_start_by ticks counts as stuck, not full.
 */
const sweep = `
create table cnapi_full_servers (
  server_uuid uuid primary key,
  tick bigint not null
) with (fillfactor = 50);

create function cnapi_sweep_late_tasks(
  p_start_by bigint, p_overdue bigint, p_not_taken text, p_not_taken_again text, p_timed_out text, p_most int,
  p_most_claimed int, p_most_bytes bigint, p_most_posts int, p_most_post_bytes bigint, p_has_room_for_posts boolean
) returns setof uuid language plpgsql volatile as $$
declare
  present bigint := cnapi_tick();
  full_servers uuid[];
  picked uuid[];
begin
  full_servers := array(
    select waiting.server_uuid
      from (select distinct t.server_uuid from cnapi_tasks t
        where t.state = 'queued' and t.queued_tick < present - p_start_by) as waiting
      join cnapi_roster_authority r on r.server_uuid = waiting.server_uuid and r.status = 'running'
      cross join lateral (
        select count(*) as tasks, coalesce(sum(c.params_bytes), 0) as bytes,
            coalesce(sum(c.params_bytes) filter (where c.accepted_at is null), 0) as unaccepted_bytes,
            min(c.worked_tick) filter (where c.accepted_at is null) as unaccepted_since
          from cnapi_tasks c
          where c.server_uuid = waiting.server_uuid and c.state = 'claimed' and (c.posted_by is null) = (r.run is not null)
      ) as has
      where case when r.run is null
        then has.tasks >= p_most_posts or has.bytes >= p_most_post_bytes or not p_has_room_for_posts
        else has.tasks >= p_most_claimed
          or has.unaccepted_bytes >= p_most_bytes and has.unaccepted_since >= present - p_start_by end
      order by waiting.server_uuid);
  -- A row that another instance is writing says the same.
  update cnapi_full_servers f set tick = present
    where f.server_uuid = any (array(
      select s.server_uuid from cnapi_full_servers s
        where s.server_uuid = any (full_servers) and s.tick < present
        order by s.server_uuid for update skip locked));
  insert into cnapi_full_servers (server_uuid, tick)
    select server_uuid, present from unnest(full_servers) as server_uuid order by server_uuid
    on conflict (server_uuid) do nothing;

  picked := array(
    select t.id from cnapi_tasks t
      where t.state = 'queued' and t.queued_tick < present - p_start_by
        and not t.server_uuid = any (full_servers)
        and not exists (select 1 from cnapi_full_servers f
          where f.server_uuid = t.server_uuid and f.tick >= present - p_start_by)
      order by t.id limit p_most
      for update skip locked);
  return query
    update cnapi_tasks t
      set state = 'ended', outcome = 'failure', error = (case when t.uncertain then p_not_taken_again else p_not_taken end)::json
      where t.id = any (picked) and t.state = 'queued'
      returning t.id;

  picked := array(
    select t.id from cnapi_tasks t
      join cnapi_roster_authority r on r.server_uuid = t.server_uuid
      where t.state = 'claimed'
        and t.worked_tick < present - ceil(t.timeout_ms / 1000.0) - p_overdue * (case r.status when 'unknown' then 1 else 10 end)
      order by t.id limit p_most
      for update of t skip locked for share of r skip locked);
  return query
    update cnapi_tasks t set state = 'ended', outcome = 'failure', error = p_timed_out::json
      where t.id = any (picked) and t.state = 'claimed'
      returning t.id;
end $$;
`;

export const tickFunctions = ticks;
export const lateFunctions = sweep;
