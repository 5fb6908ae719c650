-- Every change of a server's status, written by triggers in the transaction of the change.

create table cnapi_status_history (
  id bigint generated always as identity,
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
-- The last one: tasks/migrations/002-tasks.sql has the reason.
alter table cnapi_status_history add primary key (id);

create function cnapi_keep_status() returns trigger language plpgsql as $$
begin
  insert into cnapi_status_history
    (server_uuid, status, previous, reason, since, cnapi_uuid, epoch)
  values (
    new.server_uuid, new.status, case when tg_op = 'UPDATE' then old.status end, new.reason,
    new.since, new.decided_by, new.epoch
  );
  return null;
end $$;

create trigger cnapi_keep_first_status after insert on cnapi_roster_authority
  for each row execute function cnapi_keep_status();

create trigger cnapi_keep_changed_status after update on cnapi_roster_authority
  for each row
  when (old.status <> new.status or (new.reason = 'removed' and old.reason <> 'removed'))
  execute function cnapi_keep_status();
