-- A row is written before the change and gets its outcome afterwards, so nothing changes without a
-- row. A row without outcome belongs to a change that is in progress, or whose instance died.
--
-- `key` is the record's own uuid, from its instance. After a lost answer to a write it finds the
-- same record again, and never one that got the same id in a database that was set back. A record
-- is found by its request with or without its key, and by its object in both directions.
--
-- `details` is for an object that is deleted before its records: what it was, and how it ended.
-- `servers` are those of a change that is about several: at most 20,000, those of a push job.
create table cnapi_audit (
  id bigint generated always as identity,
  time timestamptz not null default cnapi_now(),
  actor text not null,
  roles text[] not null,
  token_uuid uuid,
  action text not null,
  method text not null,
  path text not null,
  server_uuid uuid,
  object text,
  request_id text not null,
  source text not null,
  instance uuid not null,
  status int,
  code text,
  ended_at timestamptz,
  key uuid not null,
  details jsonb,
  servers uuid[]
) with (fillfactor = 80);

create index cnapi_audit_time on cnapi_audit (time);
create index cnapi_audit_actor on cnapi_audit (actor, id);
create index cnapi_audit_server on cnapi_audit (server_uuid, id) where server_uuid is not null;
create index cnapi_audit_servers on cnapi_audit using gin (servers) where servers is not null;
create index cnapi_audit_action on cnapi_audit (action, id);
create unique index cnapi_audit_request on cnapi_audit (request_id, key);
create index cnapi_audit_object on cnapi_audit (object, id) where object is not null;
-- The last one: tasks/migrations/002-tasks.sql has the reason.
alter table cnapi_audit add primary key (id);
