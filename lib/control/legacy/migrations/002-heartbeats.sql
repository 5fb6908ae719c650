-- Records heartbeats of servers that exist, and marks `running` those that nothing outranks. A row
-- under a run that is not dead is left alone. A row whose last change came from elsewhere is taken
-- only if that change is older than the heartbeat (`since` ahead of the clock means that the clock
-- was set back, so the order is unknown). Returns a row per server that exists; it has an epoch
-- only if the server is now `running` by its heartbeats. All have the same `record`.
--
-- The id of the record is taken with the rows of cnapi_status locked, so that the ids of one
-- server's records have the order of their commits.
--
-- The roster rows are locked first, and the next statement reads the state of their runs: after the
-- wait for a lock a row may name a run that began later than the statement that waited, and that
-- statement would take the run for dead (law 5).
--
-- One statement inserts missing roster rows and locks existing ones, in key order, as an accept
-- does: otherwise the two could deadlock. Before that, the documents of servers without a row are
-- locked, so no row is created for a server that is being removed; a removal takes its locks in the
-- same order.
create function cnapi_record_legacy_heartbeats(by_uuid uuid, servers uuid[], ages_ms bigint[])
returns table (of_server uuid, row_epoch bigint, record bigint, came_back boolean)
language plpgsql as $$
declare
  -- Before any wait for a lock: a heartbeat must not seem younger than it is.
  asked_at timestamptz := cnapi_now();
  written_at timestamptz;
  known uuid[];
  known_at timestamptz[];
  recorded bigint;
  candidates uuid[];
  inserted uuid[];
  returned uuid[];
begin
  with heard as (
    select heartbeat.server_uuid,
      asked_at - make_interval(secs => heartbeat.age_ms / 1000.0) as heard_at
    from unnest(servers, ages_ms) as heartbeat (server_uuid, age_ms)
    where exists (select 1 from cnapi_servers server where server.uuid = heartbeat.server_uuid)
  ), locked as (
    insert into cnapi_status as status (server_uuid, last_heartbeat, cnapi_instance)
    select heard.server_uuid, heard.heard_at, by_uuid from heard order by heard.server_uuid
    -- Changes nothing, and locks the row.
    on conflict (server_uuid) do update set last_record = status.last_record where false
  )
  select coalesce(array_agg(heard.server_uuid), '{}'), coalesce(array_agg(heard.heard_at), '{}')
    into known, known_at from heard;
  if cardinality(known) = 0 then
    return;
  end if;
  insert into cnapi_legacy_heartbeats (cnapi_instance, servers, heard_at)
    values (by_uuid, known, known_at) returning id into recorded;

  -- Most servers stand 'running' by their heartbeats already: nothing is locked for them.
  candidates := array(
    select row.server_uuid from cnapi_roster_authority row
    where row.server_uuid = any (known)
      and (row.status = 'unknown' or row.run is not null and not exists (
        select 1 from cnapi_instances instance
        where instance.run = row.run and instance.state <> 'dead')));
  candidates := candidates || array(
    select server.uuid from cnapi_servers server
    where server.uuid = any (known)
      and not exists (select 1 from cnapi_roster_authority row where row.server_uuid = server.uuid)
    order by server.uuid for key share of server);

  with opened as (
    insert into cnapi_roster_authority as row
      (server_uuid, epoch, status, reason, since, decided_by)
    select candidate, 1, 'running', 'legacy-heartbeat', cnapi_now(), by_uuid
    from unnest(candidates) as candidate
    order by candidate
    -- Changes nothing, and locks the row.
    on conflict (server_uuid) do update set epoch = row.epoch where false
    returning row.server_uuid
  )
  select coalesce(array_agg(server_uuid), '{}') into inserted from opened;
  written_at := cnapi_now();

  with updated as (
    update cnapi_roster_authority row
    set status = 'running', reason = 'legacy-heartbeat', run = null, cnapi_uuid = null,
      epoch = row.epoch + 1,
      since = case when row.status = 'running' then row.since else written_at end,
      decided_by = by_uuid
    from unnest(servers, ages_ms) as heartbeat (server_uuid, age_ms)
    where row.server_uuid = any (candidates) and row.server_uuid = heartbeat.server_uuid
      and (row.status = 'unknown' or row.run is not null and not exists (
        select 1 from cnapi_instances instance
        where instance.run = row.run and instance.state <> 'dead'))
      and (row.status = 'running' or row.reason = 'legacy-silent' or row.since > written_at
        or row.since <= asked_at - make_interval(secs => heartbeat.age_ms / 1000.0))
    returning row.server_uuid
  )
  select coalesce(array_agg(server_uuid), '{}') into returned from updated;

  return query
    select row.server_uuid,
      case when row.status = 'running' and row.run is null then row.epoch end,
      recorded, row.server_uuid = any (inserted || returned)
    from cnapi_roster_authority row
    where row.server_uuid = any (known);
end $$;
