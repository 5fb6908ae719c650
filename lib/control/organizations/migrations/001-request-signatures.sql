-- Digests of signed requests that change something. A request whose digest is here is refused.
create table cnapi_request_signatures (
  digest bytea primary key,
  received_at timestamptz not null default cnapi_now()
);
create index cnapi_request_signatures_received on cnapi_request_signatures (received_at);
