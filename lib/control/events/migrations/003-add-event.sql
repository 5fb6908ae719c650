-- What the triggers of the nouns call, each for the changes of its own table. A trigger takes no lock
-- that other transactions wait for, and fails only if the database does.

-- Adds a change to the outbox. While no instance numbers it, it grows up to 100,000 rows; then a
-- row in `cnapi_event_misses` says that changes are missing. `p_at` is the time of the change
-- itself, if it has one, so that no further clock is read.
create function cnapi_add_event(p_kind text, p_server_uuid text, p_at timestamptz, p_body jsonb)
returns void language plpgsql volatile as $$
begin
  insert into cnapi_event_outbox (kind, server_uuid, stored_at, body)
    select p_kind, p_server_uuid, p_at, p_body
      from cnapi_event_moved_seq m, cnapi_event_outbox_id_seq s
      where s.last_value < m.last_value + 100000;
  if not found then
    insert into cnapi_event_misses (since)
      select cnapi_now() where not exists (select 1 from cnapi_event_misses);
  end if;
end $$;
