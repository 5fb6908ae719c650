-- Gives one live run queued tasks to post, from servers that run with a legacy agent (null: from
-- all of them). The roster row is locked against the accept of a session and against other claims
-- for the same server. So its limits hold over all instances: p_most_of_server tasks posted and not
-- ended, with p_bytes_of_server of params. Returns what to read (`readPosts`) and post; 'full' for
-- each of these servers that has queued tasks left; and 'again' for each named server whose row
-- another transaction had locked.
--
-- The run is read without a lock. If it dies at that moment, its posts are moved or ended like
-- those of any dead run.
--
-- How it is written, and why it returns no params, is explained in 005-claim-for-sessions.sql.
create function cnapi_claim_for_posts(
  p_run uuid, p_servers uuid[], p_most_of_server int, p_bytes_of_server bigint,
  p_most int, p_bytes bigint
) returns table (what text, id uuid, server_uuid uuid, attempt int, params_bytes int)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  held uuid[];
  held_epochs bigint[];
  picked uuid[];
  picked_epochs bigint[];
  moment timestamptz;
begin
  select array_agg(m.server_uuid), array_agg(m.epoch) into held, held_epochs
    from (
      select r.server_uuid, r.epoch
        from (
          select distinct t.server_uuid from cnapi_tasks t
            where t.state = 'queued' and (p_servers is null or t.server_uuid = any (p_servers))
            order by t.server_uuid
        ) as m
        cross join lateral (
          select r.server_uuid, r.epoch from cnapi_roster_authority r
            where r.server_uuid = m.server_uuid and r.run is null and r.status = 'running'
              and p_most_of_server > (
                select count(*) from cnapi_tasks t
                  where t.server_uuid = r.server_uuid and t.state = 'claimed'
                    and t.posted_by is not null)
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
              select p_most_of_server - count(*) as tasks,
                  p_bytes_of_server - coalesce(sum(c.params_bytes), 0) as bytes
                from cnapi_tasks c
                where c.server_uuid = m.server_uuid and c.state = 'claimed'
                  and c.posted_by is not null) as room
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
    select 'full', null::uuid, m.server_uuid, 0, 0 from unnest(held) as m (server_uuid)
      where exists (
        select 1 from cnapi_tasks t
          where t.server_uuid = m.server_uuid and t.state = 'queued' offset 0);
  return query
    select 'again', null::uuid, r.server_uuid, 0, 0 from cnapi_roster_authority r
      where r.server_uuid = any (p_servers) and not r.server_uuid = any (coalesce(held, '{}'))
        and r.run is null and r.status = 'running'
        and exists (
          select 1 from cnapi_tasks t
            where t.server_uuid = r.server_uuid and t.state = 'queued' offset 0)
        and p_most_of_server > (
          select count(*) from cnapi_tasks t
            where t.server_uuid = r.server_uuid and t.state = 'claimed'
              and t.posted_by is not null);
end $$;
