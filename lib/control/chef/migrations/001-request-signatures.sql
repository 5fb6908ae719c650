-- Digests of signed requests that change something. A request whose digest is here is refused,
-- unless it repeats one that was refused for now.
create table cnapi_request_signatures (
  digest bytea primary key,
  -- The user or client who signed it; the number of signatures of each is limited.
  principal uuid not null,
  received_at timestamptz not null default cnapi_now(),
  -- The address from which it may be repeated after it was refused for now. Null: it is used.
  repeated_from text,
  -- How often it was received again.
  repetitions smallint not null default 0
);
create index cnapi_request_signatures_received on cnapi_request_signatures (received_at);
create index cnapi_request_signatures_principal on cnapi_request_signatures (principal, received_at);
