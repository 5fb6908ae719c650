-- The operations of the waitlist are functions (law 5). They are VOLATILE, so each of their
-- statements reads afresh. Each locks the queue's row first (several rows in key order), reads the
-- time once after the locks, does its work and advances the queue. An operation that waited for the
-- lock of a deleted row finds no row, and so knows that the ticket has ended. Ended tickets do not
-- change and need no lock.

-- Makes the first waiting ticket that is not due active; the due tickets before it expire. The
-- caller holds the queue's lock. Deletes the row of an empty queue. Returns the tickets that moved.
--
-- The comparison `is true` keeps the planner from the index of due tickets, which covers all
-- queues. A plain comparison would let it choose that index.
create function cnapi_advance_queue(p_queue bigint, p_moment timestamptz)
returns table (uuid uuid, status text) language plpgsql volatile as $$
#variable_conflict use_column
declare
  head bigint;
  is_due boolean;
begin
  if exists (
    select 1 from cnapi_waitlist_tickets t where t.queue = p_queue and t.status = 'active'
  ) then
    return;
  end if;
  select t.place, t.expires_at <= p_moment into head, is_due
    from cnapi_waitlist_tickets t
    where t.queue = p_queue and t.status = 'queued'
    order by t.place limit 1;
  if is_due then
    select t.place into head
      from cnapi_waitlist_tickets t
      where t.queue = p_queue and t.status = 'queued' and (t.expires_at > p_moment) is true
      order by t.place limit 1;
    return query
      update cnapi_waitlist_tickets t set status = 'expired', updated_at = p_moment
        where t.queue = p_queue and t.status = 'queued'
          and t.place < coalesce(head, 9223372036854775807)
        returning t.uuid, t.status;
  end if;
  if head is null then
    delete from cnapi_waitlist_queues q where q.key = p_queue;
    return;
  end if;
  return query
    update cnapi_waitlist_tickets t
      set status = 'active', updated_at = p_moment, active_at = p_moment
      where t.queue = p_queue and t.status = 'queued' and t.place = head
      returning t.uuid, t.status;
end $$;
