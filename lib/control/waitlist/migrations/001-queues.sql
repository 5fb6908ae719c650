-- A queue has a row while one of its tickets is active or queued, and then one of them is active.
-- `key` is never reused, so the ended tickets of an earlier row never belong to a later one.
-- `last_place` numbers the tickets under the row's lock, because a sequence is not in commit order
-- and clocks are not order. `updated_at` is the time when a ticket last joined; only people use it.
create table cnapi_waitlist_queues (
  key bigint generated always as identity primary key,
  server_uuid text collate "C" not null,
  scope text collate "C" not null,
  id text collate "C" not null,
  last_place bigint not null,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  unique (server_uuid, scope, id)
) with (fillfactor = 70);
