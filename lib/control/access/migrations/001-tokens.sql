-- A revoked token stays for a while, so the names in the audit can be looked up.
create table cnapi_tokens (
  uuid uuid primary key,
  name text not null,
  role text not null check (role in ('reader', 'operator', 'admin', 'agent')),
  server_uuid uuid,
  secret_hash bytea not null,
  created_at timestamptz not null default cnapi_now(),
  created_by text not null,
  expires_at timestamptz,
  last_used_at timestamptz,
  revoked_at timestamptz
);

create unique index cnapi_tokens_name on cnapi_tokens (name) where revoked_at is null;
create index cnapi_tokens_revoked on cnapi_tokens (revoked_at) where revoked_at is not null;
create index cnapi_tokens_expires on cnapi_tokens (expires_at) where expires_at is not null;
