-- Gives one live run queued tasks to post, from those of these servers that run with a legacy
-- agent. The roster row is locked against the accept of a session and against other claims for the
-- same server. So its limits hold over all instances: p_most_of_server tasks posted and not ended,
-- with p_bytes_of_server of params. The servers that wait longest come first, and a server without
-- room takes nobody's place. Returns what to read (`readPosts`) and post; 'full' for each server
-- that has queued tasks left, after this claim or for lack of room; and 'again' for each other
-- server with queued tasks: another transaction had locked its row, or p_most was reached. Which
-- servers have no room is read before the locks, so that the locks are held for less time.
--
-- The run is read without a lock. If it dies at that moment, its posts are moved or ended like
-- those of any dead run.
--
-- How it is written, and why it returns no params, is explained in
-- tasks/migrations/005-claim-for-sessions.sql.
create function cnapi_claim_for_posts(
  p_run uuid, p_servers uuid[], p_most_of_server int, p_bytes_of_server bigint,
  p_most int, p_bytes bigint
) returns table (what text, id uuid, server_uuid uuid, attempt int, params_bytes int)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  waiting uuid[];
  without_room uuid[];
  held uuid[];
  held_epochs bigint[];
  picked uuid[];
  picked_epochs bigint[];
  moment timestamptz;
begin
  select array_agg(m.server_uuid order by m.queued_at, m.server_uuid) filter (where m.has_room),
      array_agg(m.server_uuid) filter (where not m.has_room)
    into waiting, without_room
    from (
      select m.server_uuid, t.queued_at,
          has.tasks < p_most_of_server and has.bytes < p_bytes_of_server as has_room
        from unnest(p_servers) as m (server_uuid)
        cross join lateral (
          select 1 from cnapi_roster_authority r
            where r.server_uuid = m.server_uuid and r.run is null and r.status = 'running'
            offset 0) as r
        cross join lateral (
          select t.queued_at from cnapi_tasks t
            where t.server_uuid = m.server_uuid and t.state = 'queued'
            order by t.queued_at limit 1) as t
        cross join lateral cnapi_given_tasks(m.server_uuid, true) as has
        offset 0
    ) as m;
  select array_agg(m.server_uuid), array_agg(m.epoch) into held, held_epochs
    from (
      select r.server_uuid, r.epoch
        from unnest(waiting) as m (server_uuid)
        cross join lateral (
          select r.server_uuid, r.epoch from cnapi_roster_authority r
            where r.server_uuid = m.server_uuid and r.run is null and r.status = 'running'
            for no key update of r skip locked) as r
        limit p_most
    ) as m;
  if not exists (select 1 from cnapi_instances i where i.run = p_run and i.state = 'live') then
    return;
  end if;
  moment := cnapi_now();
  select array_agg(p.id), array_agg(p.epoch) into picked, picked_epochs
    from (
      select own.id, own.queued_at, own.epoch,
          row_number() over turn as place,
          sum(own.params_bytes) over (turn rows unbounded preceding) - own.params_bytes
            as bytes_before
        from (
          select q.id, q.queued_at, q.params_bytes, m.epoch, room.bytes as room_bytes,
              row_number() over queue as turn_of_server,
              sum(q.params_bytes) over (queue rows unbounded preceding) - q.params_bytes
                as own_bytes_before
            from unnest(held, held_epochs) as m (server_uuid, epoch)
            cross join lateral (
              select p_most_of_server - given.tasks as tasks,
                  p_bytes_of_server - given.bytes as bytes
                from cnapi_given_tasks(m.server_uuid, true) as given) as room
            cross join lateral (
              select t.id, t.queued_at, t.params_bytes from cnapi_tasks t
                where t.server_uuid = m.server_uuid and t.state = 'queued'
                order by t.queued_at, t.id limit least(p_most, greatest(room.tasks, 0))) as q
            window queue as (partition by m.server_uuid order by q.queued_at, q.id)
        ) as own
        where own.own_bytes_before < own.room_bytes
        window turn as (order by own.turn_of_server, own.queued_at, own.id)
    ) as fair
    cross join lateral (
      select t.id, fair.epoch from cnapi_tasks t
        where t.id = fair.id and (t.state || '') = 'queued' for update skip locked) as p
    where fair.place <= p_most and fair.bytes_before < p_bytes;
  return query
    with posted as (
      update cnapi_tasks t
        set state = 'claimed', attempt = t.attempt + 1, epoch = p.epoch, journal_id = p_run,
          posted_by = p_run, claimed_at = moment, sent_at = moment, cancel_sent_at = null
        from unnest(picked, picked_epochs) as p (id, epoch)
        where t.id = p.id
        returning t.id, t.server_uuid, t.attempt, t.params_bytes, t.queued_at
    )
    select 'post', p.id, p.server_uuid, p.attempt, p.params_bytes
      from posted p order by p.queued_at, p.id;
  return query
    select case when m.server_uuid = any (held) or m.server_uuid = any (without_room)
          then 'full' else 'again' end,
        null::uuid, m.server_uuid, 0, 0
      from unnest(waiting || without_room) as m (server_uuid)
      where exists (
        select 1 from cnapi_tasks t
          where t.server_uuid = m.server_uuid and t.state = 'queued' offset 0);
end $$;
