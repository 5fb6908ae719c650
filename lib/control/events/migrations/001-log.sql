-- The log of events, which the database itself keeps. Triggers record each change in the
-- transaction that makes it (003-triggers.sql). So no event exists without its change, and no
-- change is lost when an instance dies. Recorded changes wait in `cnapi_event_outbox`;
-- `cnapi_number_events` moves them to `cnapi_events`.
--
-- There are two steps because readers ask for events above the last id they have, and ids taken
-- inside transactions are not in commit order. A change that is committed later is found in the
-- outbox later, and numbers are given under the lock of one row (law 5). The outbox has the changes
-- of one object in order: the object's row is locked when the id is taken.

-- The ids have no holes.
create table cnapi_events (
  id bigint primary key,
  kind text collate "C" not null,
  server_uuid text collate "C",
  stored_at timestamptz not null,
  body jsonb not null
);

create table cnapi_event_outbox (
  id bigint generated always as identity primary key,
  kind text collate "C" not null,
  server_uuid text collate "C",
  stored_at timestamptz not null,
  body jsonb not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- A row says that changes have not been recorded since then, because the outbox was full.
create table cnapi_event_misses (since timestamptz not null);

-- The row whose lock the numbering holds.
create table cnapi_event_log (
  is_only boolean primary key default true check (is_only)
) with (fillfactor = 50);

insert into cnapi_event_log default values;

-- What the numbering has read, one row for each time. Rows are only inserted, and read from the
-- end, so dead rows do not slow it down while a transaction keeps an old snapshot (a dump does so
-- for hours). For the same reason rows of the outbox are read by position and deleted later, at
-- least a thousand together, at the end that nobody reads.
--
-- read_id     the outbox is read up to here, except for the holes: ranges of ids that did not exist
--             when their neighbours were read. The transaction that took such an id is still
--             running or was rolled back
-- hole_mark   a transaction id above those of all transactions that were running when the hole was
--             found. Once all transactions below it have ended, the hole stays empty
-- dropped_id  the outbox is deleted up to here
-- gap_mark    the same as hole_mark, for a gap that is to be repeated; gap_since is its beginning
create table cnapi_event_numberings (
  id bigint primary key,
  last_id bigint not null,
  read_id bigint not null,
  dropped_id bigint not null,
  hole_from bigint[] not null default '{}',
  hole_to bigint[] not null default '{}',
  hole_mark bigint[] not null default '{}',
  gap_since timestamptz,
  gap_mark bigint
);

insert into cnapi_event_numberings (id, last_id, read_id, dropped_id) values (1, 0, 0, 0);

-- The position up to which the outbox is read, for the bound on its length. Triggers read it for
-- each change, and a sequence has no dead rows. Nothing depends on its being exact. (Tests set it
-- below zero, as if a full outbox were waiting.)
create sequence cnapi_event_moved_seq minvalue -1000000000 start 1;

-- One row for each removal of old events: all events up to `up_to` are deleted. Rows are only
-- inserted, and read from the end.
create table cnapi_event_trims (up_to bigint primary key);
