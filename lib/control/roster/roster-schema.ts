/**
 * Tables of the roster: instances (one row per run, with its lease), authority and status (one row
 * per server), status history.
 */
import type { Migration } from '../../platform/postgres/migrations.ts';

const instances = `
create table cnapi_instances (
  run uuid primary key,
  cnapi_uuid uuid not null,
  url text not null,
  host text not null,
  port int not null,
  pid int not null,
  version text not null,
  state text not null default 'live' check (state in ('live', 'dead')),
  beat bigint not null default 0,
  agents int not null default 0,
  started_at timestamptz not null default cnapi_now(),
  ended_at timestamptz,
  end_reason text check (end_reason in ('stopped', 'lapsed'))
);
create index cnapi_instances_live on cnapi_instances (run) where state = 'live';
`;

/**
 * `replaced` is the incarnation that held the row, and still counted as connected, when the present
 * incarnation took it.
 */
const authority = `
create table cnapi_roster_authority (
  server_uuid uuid primary key,
  cnapi_uuid uuid,
  run uuid,
  epoch bigint not null,
  status text not null check (status in ('running', 'unknown')),
  reason text not null,
  since timestamptz not null,
  said_by uuid,
  incarnation uuid,
  conn bigint,
  journal_id uuid,
  inventory_epoch bigint not null default 0,
  replaced uuid
) with (fillfactor = 70);
create index cnapi_roster_authority_run on cnapi_roster_authority (run);
`;

const history = `
create table cnapi_status_history (
  id bigint generated always as identity primary key,
  server_uuid uuid not null,
  status text not null,
  previous text,
  reason text not null,
  since timestamptz not null,
  cnapi_uuid uuid,
  epoch bigint not null
);
create index cnapi_status_history_server on cnapi_status_history (server_uuid, id desc);
create index cnapi_status_history_since on cnapi_status_history (since);

create function cnapi_keep_status() returns trigger language plpgsql as $$
begin
  insert into cnapi_status_history (server_uuid, status, previous, reason, since, cnapi_uuid, epoch)
  values (new.server_uuid, new.status, case when tg_op = 'UPDATE' then old.status end, new.reason, new.since, new.said_by,
    new.epoch);
  return null;
end $$;

create trigger cnapi_keep_first_status after insert on cnapi_roster_authority
  for each row execute function cnapi_keep_status();
create trigger cnapi_keep_changed_status after update on cnapi_roster_authority
  for each row when (old.status <> new.status or (new.reason = 'removed' and old.reason <> 'removed'))
  execute function cnapi_keep_status();
`;

/**
 * `draining_since`: the instance is about to leave and accepts no more agents. The last instance
 * that stays is not drained. Two requests at the same time are handled one after the other.
 */
const drain = `
alter table cnapi_instances add column if not exists draining_since timestamptz;

create function cnapi_drain(wanted uuid) returns text language plpgsql volatile as $$
declare
  found_since timestamptz;
begin
  perform 1 from cnapi_instances where state = 'live' order by run for update;
  select draining_since into found_since from cnapi_instances where run = wanted and state = 'live';
  if not found then
    return 'gone';
  elsif found_since is not null then
    return 'draining';
  elsif not exists (select 1 from cnapi_instances where state = 'live' and draining_since is null and run <> wanted) then
    return 'last';
  end if;
  update cnapi_instances set draining_since = cnapi_now() where run = wanted;
  return 'draining';
end $$;
`;

/**
 * Counts the remaining instances by `cnapi_uuid`, not by run. An instance that was killed and
 * restarted may still have an earlier run that nobody has declared dead, but agents cannot go to
 * that run.
 */
const drainOthers = `
create or replace function cnapi_drain(wanted uuid) returns text language plpgsql volatile as $$
declare
  leaving cnapi_instances;
begin
  perform 1 from cnapi_instances where state = 'live' order by run for update;
  select * into leaving from cnapi_instances where run = wanted and state = 'live';
  if not found then
    return 'gone';
  elsif leaving.draining_since is not null then
    return 'draining';
  elsif not exists (
    select 1 from cnapi_instances
    where state = 'live' and draining_since is null and cnapi_uuid <> leaving.cnapi_uuid
  ) then
    return 'last';
  end if;
  update cnapi_instances set draining_since = cnapi_now() where run = wanted;
  return 'draining';
end $$;
`;

/**
 * Removes the authority for a removed server; its epoch stays. Locks the row, then reads it.
 * Returns nothing if there is no row. Called by `cnapi_remove_server`, which also deletes the
 * server's document.
 */
const removeAuthority = `
create function cnapi_remove_authority(by_uuid uuid, removed_uuid uuid)
returns table (was_running boolean, previous_run uuid, kept_epoch bigint) language plpgsql volatile as $$
declare
  found_row cnapi_roster_authority;
begin
  select * into found_row from cnapi_roster_authority where server_uuid = removed_uuid for update;
  if not found then
    return;
  end if;
  update cnapi_roster_authority
    set run = null, cnapi_uuid = null, status = 'unknown', reason = 'removed', said_by = by_uuid, since = cnapi_now()
    where server_uuid = removed_uuid;
  return query select found_row.status = 'running', found_row.run, found_row.epoch;
end $$;
`;

/**
 * Whether new agents are admitted: `open`, `paced` or `closed`. Null: an earlier version, which
 * does not report it.
 */
const admission = `
alter table cnapi_instances add column if not exists admission text;
`;

/**
 * The time at which all the server's returns from `unknown` are paid for. Limits how often a server
 * may return; see `acceptSessions`.
 */
const returns = 'alter table cnapi_roster_authority add column if not exists returns_paid_at timestamptz';

export const rosterMigrations: Migration[] = [
  { number: 10, name: 'instances', sql: instances },
  { number: 11, name: 'roster authority', sql: authority },
  { number: 12, name: 'status history', sql: history },
  { number: 13, name: 'drain', sql: drain },
  { number: 14, name: 'drain beside an earlier run', sql: drainOthers },
  { number: 140, name: 'returns of servers are paced', sql: returns },
  { number: 150, name: 'admission of agents', sql: admission },
  { number: 170, name: 'remove authority', sql: removeAuthority },
];
