-- What a server was given and has not ended: posts to its legacy agent, or what its sessions were
-- given. Every rule about a server's room uses it: the claims, and the sweep, which ends a task
-- that a server with room does not take. A server whose legacy agent was replaced may have both
-- kinds, and posts take no room of a session. Postgres puts the query in the place of the call, so
-- it is planned with the statement that calls it.
create function cnapi_given_tasks(p_server uuid, p_posted boolean) returns table (
  tasks bigint, bytes bigint, unaccepted_bytes bigint, unaccepted_since bigint
) language sql stable as $$
  select count(*), coalesce(sum(c.params_bytes), 0),
      coalesce(sum(c.params_bytes) filter (where c.accepted_at is null), 0),
      min(c.worked_tick) filter (where c.accepted_at is null)
    from cnapi_tasks c
    where c.server_uuid = p_server and c.state = 'claimed'
      and (c.posted_by is not null) = p_posted
$$;

-- Gives queued tasks to the sessions of one run whose roster row still names that run and epoch,
-- and returns the cancels to send. The values of `what`:
--
--     send    this attempt was claimed: read it (`readDispatches`) and send it
--     cancel  tell the agent to end this attempt
--     full    the server has queued tasks, and must accept or end some tasks before it gets more
--     again   the server has queued tasks or cancels that could not be taken now: a limit was
--             reached, or a row was locked
--
-- One call gives a server at most p_most tasks and p_most cancels. A server holds at most
-- p_most_claimed tasks, at most p_most_bytes of params that it has not accepted, and at most
-- p_most_held_bytes of params in all, because its journal must hold them (one task may exceed
-- these). p_most_all and p_most_all_bytes limit one call. Within them every server
-- gets its first task before any server gets its second, the longest waiting first.
--
-- A requested cancel is sent, and sent again after p_resend_ms, the longest ago first.
--
-- This function locks rows that others need, so it returns ids and numbers only. Postgres keeps a
-- statement's locks until the client has read the whole answer, and a client that is stopped or cut
-- off may never read it (law 5). Another statement reads the wide columns after this one has
-- committed.
--
-- It runs a constant number of statements, whatever the number of servers. To plan them costs more
-- than to run them for one server, so a connection plans them once. That plan must serve two
-- thousand servers as well, and a table that was nearly empty when the connection planned. So
-- each statement goes from its arrays to the rows by index: `cross join lateral` with `offset 0`
-- where it reads, and `= any (array[…])` where it writes. For the second Postgres has no way but a
-- lookup for each row: with a plain `=` it may read the whole primary key and compare.
-- 002-tasks.sql explains the conditions on `state || ''`.
-- Rows that another transaction has locked are skipped, and their servers are returned as 'again':
-- one locked row delays no other server (law 9).
create function cnapi_claim_for_sessions(
  p_run uuid, p_servers uuid[], p_epochs bigint[], p_journals uuid[], p_resend_ms int,
  p_most_claimed int, p_most int, p_most_bytes int, p_most_held_bytes int,
  p_most_all int, p_most_all_bytes int, p_most_cancels int
) returns table (
  what text, id uuid, server_uuid uuid, attempt int, epoch bigint, params_bytes int
) language plpgsql volatile
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
  held uuid[];
  held_epochs bigint[];
  held_journals uuid[];
  picked uuid[];
  picked_epochs bigint[];
  picked_journals uuid[];
  due uuid[];
  moment timestamptz;
begin
  select array_agg(m.server_uuid), array_agg(m.epoch), array_agg(m.journal_id)
    into held, held_epochs, held_journals
    from (
      select * from unnest(p_servers, p_epochs, p_journals) as m (server_uuid, epoch, journal_id)
        where exists (
          select 1 from cnapi_tasks t
            where t.server_uuid = m.server_uuid and t.state = 'queued' offset 0)
        order by m.server_uuid offset 0
    ) as m
    cross join lateral (
      select 1 from cnapi_roster_authority r
        where r.server_uuid = m.server_uuid and r.epoch = m.epoch and r.run = p_run
          and r.status = 'running'
        for share of r skip locked) as r;
  moment := cnapi_now();
  select array_agg(p.id), array_agg(p.epoch), array_agg(p.journal_id)
    into picked, picked_epochs, picked_journals
    from (
      select own.id, own.queued_at, own.epoch, own.journal_id,
          row_number() over turn as place,
          sum(own.params_bytes) over (turn rows unbounded preceding) - own.params_bytes
            as bytes_before
        from (
          select q.id, q.queued_at, q.params_bytes, m.epoch, m.journal_id,
              room.bytes as room_bytes,
              row_number() over queue as turn_of_server,
              sum(q.params_bytes) over (queue rows unbounded preceding) - q.params_bytes
                as own_bytes_before
            from unnest(held, held_epochs, held_journals) as m (server_uuid, epoch, journal_id)
            cross join lateral (
              select p_most_claimed - given.tasks as tasks,
                  least(p_most_bytes - given.unaccepted_bytes, p_most_held_bytes - given.bytes)
                    as bytes
                from cnapi_given_tasks(m.server_uuid, false) as given) as room
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
      select t.id, fair.epoch, fair.journal_id from cnapi_tasks t
        where t.id = fair.id and (t.state || '') = 'queued' for update skip locked) as p
    where fair.place <= p_most_all and fair.bytes_before < p_most_all_bytes;
  return query
    with sent as (
      update cnapi_tasks t
        set state = 'claimed', attempt = t.attempt + 1, epoch = p.epoch, journal_id = p.journal_id,
          claimed_at = moment, sent_at = moment, cancel_sent_at = null
        from unnest(picked, picked_epochs, picked_journals) as p (id, epoch, journal_id)
        where t.id = any (array[p.id])
        returning t.id, t.server_uuid, t.attempt, t.epoch, t.params_bytes, t.queued_at
    )
    select 'send', s.id, s.server_uuid, s.attempt, s.epoch, s.params_bytes
      from sent s order by s.queued_at, s.id;
  return query
    select case when has.tasks >= p_most_claimed or has.unaccepted_bytes >= p_most_bytes
            or has.bytes >= p_most_held_bytes
          then 'full' else 'again' end,
        null::uuid, m.server_uuid, 0, m.epoch, 0
      from unnest(p_servers, p_epochs) as m (server_uuid, epoch)
      cross join lateral (
        select 1 from cnapi_roster_authority r
          where r.server_uuid = m.server_uuid and r.run = p_run and r.epoch = m.epoch
            and r.status = 'running'
            and exists (
              select 1 from cnapi_tasks t
                where t.server_uuid = m.server_uuid and t.state = 'queued' offset 0)
          offset 0) as r
      cross join lateral cnapi_given_tasks(m.server_uuid, false) as has;

  due := array(
    select d.id from unnest(p_servers, p_epochs) as m (server_uuid, epoch)
      cross join lateral (
        select t.id, t.cancel_sent_at from cnapi_tasks t
          where t.server_uuid = m.server_uuid and t.epoch = m.epoch and t.state = 'claimed'
            and t.cancel_requested_at is not null
            and (t.cancel_sent_at is null
              or t.cancel_sent_at < moment - p_resend_ms * interval '1 ms'
              -- The database's clock was set back since.
              or t.cancel_sent_at > moment)
          order by t.cancel_sent_at nulls first, t.id limit p_most) as d
      order by d.cancel_sent_at nulls first, d.id limit p_most_cancels);
  if cardinality(due) = 0 then
    return;
  end if;
  picked := array(
    select t.id from cnapi_tasks t
      where t.id = any (due) and (t.state || '') = 'claimed' for update skip locked);
  return query
    update cnapi_tasks t set cancel_sent_at = moment
      where t.id = any (picked)
      returning 'cancel', t.id, t.server_uuid, t.attempt, t.epoch, 0;
  return query
    select distinct on (t.server_uuid) 'again', null::uuid, t.server_uuid, 0, t.epoch, 0
      from cnapi_tasks t
      where (t.state || '') = 'claimed' and t.id = any (due)
        and (not t.id = any (picked)
          or t.server_uuid in (
            select c.server_uuid from cnapi_tasks c where c.id = any (picked)
              group by c.server_uuid having count(*) >= p_most));
end $$;
