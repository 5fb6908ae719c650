/**
 * Sightings of old agents (docs/design.md section 5, "Old agents"): the table, under the reference's name, and the two functions
 * that look at it and at the roster's rows together. Both lock in one order: rows of cnapi_status first, then rows of the
 * roster, each in key order; what they decide on is read after that (law 5).
 *
 * A sighting is a post that any instance received. `sightings` counts those recorded of a server: a silence is judged as
 * compare-and-set on it, so that no instance compares its clock with another's, and a sighting that a verdict knew nothing
 * of always undoes it. The row of a server that only its sightings keep `running` names no run.
 */
import type { Migration } from '../moray/migrations.ts';

const status = `
create table cnapi_status (
  server_uuid uuid primary key,
  last_heartbeat timestamptz not null,
  cnapi_instance uuid not null,
  sightings bigint not null default 1
) with (fillfactor = 70);
`;

/**
 * Counts sightings of servers that exist, and says `running` of those that nothing outranks: a row under a run that is not
 * dead is left alone; one whose last word came from elsewhere is taken only if that is older than the sighting (`since`
 * ahead of the clock means that the clock was set back: no order can be told). Returns a row per server that exists; the
 * epoch only of those that are `running` by their sightings now.
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
 * Says `unknown` of servers whose count of sightings is still the one that was seen standing, and that stand `running` by
 * their sightings under that epoch. It never waits: a row in use is somebody's fresher word. A row of cnapi_status that got
 * lost counts zero. Returns the servers it applied to.
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
];
