-- The addresses from which servers' legacy agents posted, as any instance saw them. Tasks are
-- posted only to addresses that are known for the server.
create table cnapi_agent_sources (
  server_uuid uuid not null,
  address text not null,
  heard_at timestamptz not null,
  primary key (server_uuid, address)
);
