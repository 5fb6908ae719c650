-- Deletes the active and queued tickets of a server, p_most queues at a time. Each queue is deleted
-- as a whole, so that none of its tickets becomes active. Queues with a key above p_last are kept:
-- keys rise, also when the database's clock is set back. Returns the tickets, and null for each
-- queue; no null means that no queue is left.
create function cnapi_delete_queues(p_server_uuid text, p_last bigint, p_most int)
returns setof uuid language plpgsql volatile as $$
declare
  held bigint[];
begin
  held := array(
    select q.key from cnapi_waitlist_queues q
      where q.server_uuid = p_server_uuid and q.key <= p_last
      order by q.key limit p_most
      for update);
  return query
    delete from cnapi_waitlist_tickets t
      where t.queue = any (held) and t.status = 'queued' returning t.uuid;
  return query
    delete from cnapi_waitlist_tickets t
      where t.queue = any (held) and t.status = 'active' returning t.uuid;
  return query
    delete from cnapi_waitlist_queues q where q.key = any (held) returning null::uuid;
end $$;
