-- The heartbeats of legacy agents (docs/design/legacy-agents.md), under the
-- reference's name. A sighting is a legacy heartbeat that any instance received; `sightings` counts
-- a server's recorded ones.
--
-- Two functions use this table and the roster's rows together (cnapi_record_sightings,
-- cnapi_record_old_silences). Both lock in one order: rows of cnapi_status, then documents of
-- servers, then rows of the roster, each in key order. They read what they decide on after that
-- (law 5).
--
-- A silence is a compare-and-set on the count of sightings, so no instance compares its clock with
-- another's. A heartbeat that a status change did not take into account always undoes it. If only
-- its heartbeats keep a server `running`, its roster row names no run.
create table cnapi_status (
  server_uuid uuid primary key,
  last_heartbeat timestamptz not null,
  cnapi_instance uuid not null,
  sightings bigint not null default 1
) with (fillfactor = 70);
