-- The parts of a server that have rows of their own. The server's document is in the bucket
-- `cnapi_servers` (server-bucket.ts).

create table cnapi_server_sysinfo (
  server_uuid uuid primary key,
  digest text not null,
  sysinfo jsonb not null,
  stored_at timestamptz not null
);

-- epoch      of the session that sent the last report; null for a legacy agent
-- destroyed  when tasks have destroyed VMs, by uuid, for as long as an older report may arrive
create table cnapi_server_reports (
  server_uuid uuid primary key,
  vms jsonb not null,
  memory jsonb not null,
  disk jsonb not null,
  stored_at timestamptz not null,
  epoch bigint,
  destroyed jsonb not null default '{}'
);
