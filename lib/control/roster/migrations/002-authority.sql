-- One row for each server: the run that has authority for it, and its status.
--
-- replaced               the incarnation that held the row, and still counted as connected, when the
--                        present incarnation took it
-- returns_quota_full_at  when the server's quota of returns from `unknown` is full again; limits how
--                        often a server may return (`acceptSessions`)
create table cnapi_roster_authority (
  server_uuid uuid primary key,
  cnapi_uuid uuid,
  run uuid,
  epoch bigint not null,
  status text not null check (status in ('running', 'unknown')),
  reason text not null,
  since timestamptz not null,
  decided_by uuid,
  incarnation uuid,
  conn bigint,
  journal_id uuid,
  inventory_epoch bigint not null default 0,
  replaced uuid,
  returns_quota_full_at timestamptz
) with (fillfactor = 70);

-- There is no index on `run`. Every guarded statement looks a row up by its server and compares its
-- run. In a new zone, where the statistics say that the table is nearly empty, Postgres would use
-- such an index instead of the key, and read all servers of the run for each of them. Without it
-- an accept changes no indexed column, which is cheaper as well.
