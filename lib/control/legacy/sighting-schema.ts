/**
 * Heartbeats of legacy agents (docs/design.md section 5, "Legacy agents"): the table, under the
 * reference's name, and the two functions that use it and the roster's rows together. Both lock in
 * one order: rows of cnapi_status, then documents of servers, then rows of the roster, each in key
 * order. They read what they decide on after that (law 5).
 *
 * A sighting is a legacy heartbeat that any instance received. `sightings` counts a server's
 * recorded ones. A silence is a compare-and-set on this count, so no instance compares its clock
 * with another's. A heartbeat that a status change did not take into account always undoes it. If
 * only its heartbeats keep a server `running`, its row names no run.
 */
import type { Migration } from '../../platform/postgres/migrations.ts';

const status = `
create table cnapi_status (
  server_uuid uuid primary key,
  last_heartbeat timestamptz not null,
  cnapi_instance uuid not null,
  sightings bigint not null default 1
) with (fillfactor = 70);
`;

/**
 * Counts heartbeats of servers that exist, and marks `running` those that nothing outranks. A row
 * under a run that is not dead is left alone. A row whose last change came from elsewhere is taken
 * only if that change is older than the heartbeat (`since` ahead of the clock means that the clock
 * was set back, so the order is unknown). Returns a row per server that exists; it has an epoch
 * only if the server is now `running` by its heartbeats.
 */
const recordSightings = `
create function cnapi_record_sightings(by_uuid uuid, servers uuid[], ages_ms bigint[])
returns table (sighted uuid, row_epoch bigint, counted bigint, came_back boolean) language plpgsql as $$
declare
  -- Before any wait for a lock: a sighting must not seem younger than it is.
  asked_at timestamptz := cnapi_now();
  written_at timestamptz;
  known uuid[];
  open_to_it uuid[];
  opened uuid[];
  returned uuid[];
begin
  with counted as (
    insert into cnapi_status as status (server_uuid, last_heartbeat, cnapi_instance)
    select sighting.server_uuid, asked_at - make_interval(secs => sighting.age_ms / 1000.0), by_uuid
    from unnest(servers, ages_ms) as sighting (server_uuid, age_ms)
    where exists (select 1 from cnapi_servers server where server.uuid = sighting.server_uuid)
    order by sighting.server_uuid
    on conflict (server_uuid) do update set
      last_heartbeat = greatest(status.last_heartbeat, excluded.last_heartbeat),
      cnapi_instance = excluded.cnapi_instance,
      sightings = status.sightings + 1
    returning status.server_uuid
  )
  select coalesce(array_agg(server_uuid), '{}') into known from counted;

  select coalesce(array_agg(server_uuid), '{}') into open_to_it from (
    select row.server_uuid from cnapi_roster_authority row
    where row.server_uuid = any (known)
      and (row.status = 'unknown' or row.run is not null and not exists (
        select 1 from cnapi_instances instance where instance.run = row.run and instance.state <> 'dead'))
    order by row.server_uuid for update of row
  ) as locked;
  written_at := cnapi_now();

  with inserted as (
    insert into cnapi_roster_authority (server_uuid, epoch, status, reason, since, said_by)
    select server.uuid, 1, 'running', 'legacy-heartbeat', written_at, by_uuid from cnapi_servers server
    where server.uuid = any (known)
      and not exists (select 1 from cnapi_roster_authority row where row.server_uuid = server.uuid)
    order by server.uuid
    on conflict do nothing
    returning server_uuid
  )
  select coalesce(array_agg(server_uuid), '{}') into opened from inserted;

  with updated as (
    update cnapi_roster_authority row
    set status = 'running', reason = 'legacy-heartbeat', run = null, cnapi_uuid = null, epoch = row.epoch + 1,
      since = case when row.status = 'running' then row.since else written_at end, said_by = by_uuid
    from unnest(servers, ages_ms) as sighting (server_uuid, age_ms)
    where row.server_uuid = any (open_to_it) and row.server_uuid = sighting.server_uuid
      and (row.status = 'running' or row.reason = 'legacy-silent' or row.since > written_at
        or row.since <= asked_at - make_interval(secs => sighting.age_ms / 1000.0))
    returning row.server_uuid
  )
  select coalesce(array_agg(server_uuid), '{}') into returned from updated;

  return query
    select row.server_uuid, case when row.status = 'running' and row.run is null then row.epoch end, status.sightings,
      row.server_uuid = any (opened || returned)
    from cnapi_roster_authority row join cnapi_status status on status.server_uuid = row.server_uuid
    where row.server_uuid = any (known);
end $$;
`;

/**
 * Returns the same as the first version, with two defects fixed. The first version read the state
 * of a row's run in the statement that locked the row. After a lock wait the row could name a run
 * that began later than the statement; that run was not found and counted as dead. Here the rows
 * are locked first, and the next statement reads the state of their runs (law 5). The first version
 * also locked existing rows before it inserted new ones, while an accept does both in key order, so
 * the two could deadlock. Here one statement inserts missing rows and locks existing ones, in key
 * order. Before that, it locks the documents of servers without a row, so no row is created for a
 * server that is being removed; a removal takes its locks in the same order.
 */
const lockBeforeReading = `
create or replace function cnapi_record_sightings(by_uuid uuid, servers uuid[], ages_ms bigint[])
returns table (sighted uuid, row_epoch bigint, counted bigint, came_back boolean) language plpgsql as $$
declare
  -- Before any wait for a lock: a sighting must not seem younger than it is.
  asked_at timestamptz := cnapi_now();
  written_at timestamptz;
  known uuid[];
  candidates uuid[];
  inserted uuid[];
  returned uuid[];
begin
  with counted as (
    insert into cnapi_status as status (server_uuid, last_heartbeat, cnapi_instance)
    select sighting.server_uuid, asked_at - make_interval(secs => sighting.age_ms / 1000.0), by_uuid
    from unnest(servers, ages_ms) as sighting (server_uuid, age_ms)
    where exists (select 1 from cnapi_servers server where server.uuid = sighting.server_uuid)
    order by sighting.server_uuid
    on conflict (server_uuid) do update set
      last_heartbeat = greatest(status.last_heartbeat, excluded.last_heartbeat),
      cnapi_instance = excluded.cnapi_instance,
      sightings = status.sightings + 1
    returning status.server_uuid
  )
  select coalesce(array_agg(server_uuid), '{}') into known from counted;

  -- Most servers stand 'running' by their sightings already: nothing is locked for them.
  candidates := array(
    select row.server_uuid from cnapi_roster_authority row
    where row.server_uuid = any (known)
      and (row.status = 'unknown' or row.run is not null and not exists (
        select 1 from cnapi_instances instance where instance.run = row.run and instance.state <> 'dead')));
  candidates := candidates || array(
    select server.uuid from cnapi_servers server
    where server.uuid = any (known)
      and not exists (select 1 from cnapi_roster_authority row where row.server_uuid = server.uuid)
    order by server.uuid for key share of server);

  with opened as (
    insert into cnapi_roster_authority as row (server_uuid, epoch, status, reason, since, said_by)
    select candidate, 1, 'running', 'legacy-heartbeat', cnapi_now(), by_uuid from unnest(candidates) as candidate
    order by candidate
    -- Changes nothing, and locks the row.
    on conflict (server_uuid) do update set epoch = row.epoch where false
    returning row.server_uuid
  )
  select coalesce(array_agg(server_uuid), '{}') into inserted from opened;
  written_at := cnapi_now();

  with updated as (
    update cnapi_roster_authority row
    set status = 'running', reason = 'legacy-heartbeat', run = null, cnapi_uuid = null, epoch = row.epoch + 1,
      since = case when row.status = 'running' then row.since else written_at end, said_by = by_uuid
    from unnest(servers, ages_ms) as sighting (server_uuid, age_ms)
    where row.server_uuid = any (candidates) and row.server_uuid = sighting.server_uuid
      and (row.status = 'unknown' or row.run is not null and not exists (
        select 1 from cnapi_instances instance where instance.run = row.run and instance.state <> 'dead'))
      and (row.status = 'running' or row.reason = 'legacy-silent' or row.since > written_at
        or row.since <= asked_at - make_interval(secs => sighting.age_ms / 1000.0))
    returning row.server_uuid
  )
  select coalesce(array_agg(server_uuid), '{}') into returned from updated;

  return query
    select row.server_uuid, case when row.status = 'running' and row.run is null then row.epoch end, status.sightings,
      row.server_uuid = any (inserted || returned)
    from cnapi_roster_authority row join cnapi_status status on status.server_uuid = row.server_uuid
    where row.server_uuid = any (known);
end $$;
`;

/**
 * Marks `unknown` the servers whose count of heartbeats has not moved since it was read, and that
 * are `running` by their heartbeats under that epoch. It never waits: a locked row is being changed
 * by somebody with newer information. A missing row of cnapi_status counts as zero. Returns the
 * servers that it changed.
 */
const recordSilences = `
create function cnapi_record_old_silences(by_uuid uuid, servers uuid[], epochs bigint[], counts bigint[])
returns setof uuid language plpgsql as $$
declare
  unsighted uuid[];
begin
  insert into cnapi_status (server_uuid, last_heartbeat, cnapi_instance, sightings)
  select silence.server_uuid, cnapi_now(), by_uuid, 0
  from unnest(servers, counts) as silence (server_uuid, sightings)
  where silence.sightings = 0 order by silence.server_uuid
  on conflict do nothing;

  select coalesce(array_agg(server_uuid), '{}') into unsighted from (
    select status.server_uuid from cnapi_status status
    join unnest(servers, counts) as silence (server_uuid, sightings) using (server_uuid)
    where status.sightings = silence.sightings
    order by status.server_uuid for update of status skip locked
  ) as locked;

  select coalesce(array_agg(server_uuid), '{}') into unsighted from (
    select row.server_uuid from cnapi_roster_authority row
    join unnest(servers, epochs) as silence (server_uuid, epoch) using (server_uuid)
    where row.server_uuid = any (unsighted) and row.epoch = silence.epoch and row.status = 'running' and row.run is null
    order by row.server_uuid for update of row skip locked
  ) as locked;

  return query
    update cnapi_roster_authority row
    set status = 'unknown', reason = 'legacy-silent', since = cnapi_now(), said_by = by_uuid
    where row.server_uuid = any (unsighted)
    returning row.server_uuid;
end $$;
`;

export const sightingMigrations: Migration[] = [
  { number: 50, name: 'sightings of old agents', sql: status + recordSightings + recordSilences },
  { number: 172, name: 'sightings lock before they read', sql: lockBeforeReading },
];
