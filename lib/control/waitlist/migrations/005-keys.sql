-- Idempotency keys of tickets. A caller repeats a create under its key when the answer was lost; it
-- then receives the ticket that the first request made or is about to make. A key lasts as long as
-- its ticket, which is deleted with its history.
create table cnapi_waitlist_keys (
  server_uuid text collate "C" not null,
  idempotency_key text collate "C" not null,
  request_hash text not null,
  ticket uuid not null unique references cnapi_waitlist_tickets (uuid) on delete cascade,
  primary key (server_uuid, idempotency_key)
);

-- Creates with the same key run one after the other: each first takes a lock for its transaction,
-- before it locks the queue. Returns the key's ticket and the hash of the request that made it; or
-- no ticket and the reason (refusal).
create function cnapi_create_ticket_once(
  p_key text, p_hash text, p_uuid uuid, p_server_uuid text, p_scope text, p_id text,
  p_action text, p_extra json, p_reqid text, p_actor text, p_expires_at timestamptz,
  p_expires_in_ms bigint, p_expires_text text, p_most_waiting int, p_most_open int
) returns table (made uuid, made_by text, refusal text) language plpgsql volatile as $$
declare
  outcome text;
begin
  perform pg_advisory_xact_lock(hashtextextended(p_server_uuid || ' ' || p_key, 0));
  return query
    select k.ticket, k.request_hash, null::text from cnapi_waitlist_keys k
      where k.server_uuid = p_server_uuid and k.idempotency_key = p_key;
  if found then
    return;
  end if;
  outcome := cnapi_add_ticket(p_uuid, p_server_uuid, p_scope, p_id, p_action, p_extra, p_reqid,
    p_actor, p_expires_at, p_expires_in_ms, p_expires_text, p_most_waiting, p_most_open);
  if outcome <> 'added' then
    return query select null::uuid, null::text, outcome;
    return;
  end if;
  insert into cnapi_waitlist_keys (server_uuid, idempotency_key, request_hash, ticket)
    values (p_server_uuid, p_key, p_hash, p_uuid);
  return query select p_uuid, p_hash, null::text;
end $$;
