-- Operations on one ticket: release, renew, delete.

-- Locks the queue of a ticket. Returns null when the ticket does not exist or has ended.
create function cnapi_lock_queue_of(p_ticket uuid) returns bigint language plpgsql volatile as $$
declare
  locked bigint;
begin
  select q.key into locked
    from cnapi_waitlist_tickets t
    join cnapi_waitlist_queues q on q.key = t.queue
    where t.uuid = p_ticket and t.status in ('queued', 'active')
    for update of q;
  return locked;
end $$;

-- Finishes an active or queued ticket. Returns the ticket as it is afterwards, and the tickets that
-- moved as a result; nothing when the ticket does not exist.
create function cnapi_release_ticket(p_uuid uuid)
returns table (uuid uuid, status text, moved boolean) language plpgsql volatile as $$
#variable_conflict use_column
declare
  mine bigint := cnapi_lock_queue_of(p_uuid);
  moment timestamptz := cnapi_now();
begin
  return query
    update cnapi_waitlist_tickets t set status = 'finished', updated_at = moment
      where t.uuid = p_uuid and t.queue = mine and t.status in ('queued', 'active')
      returning t.uuid, t.status, true;
  if found then
    return query select a.uuid, a.status, true from cnapi_advance_queue(mine, moment) a;
  else
    return query
      select t.uuid, t.status, false from cnapi_waitlist_tickets t where t.uuid = p_uuid;
  end if;
end $$;

-- Sets when a ticket expires. An ended ticket does not change; a ticket that is already due expires
-- now. Returns the ticket as it is afterwards, and the tickets that moved as a result; nothing when
-- the ticket does not exist.
create function cnapi_renew_ticket(
  p_uuid uuid, p_expires_at timestamptz, p_expires_in_ms bigint, p_expires_text text
) returns table (uuid uuid, status text, moved boolean) language plpgsql volatile as $$
#variable_conflict use_column
declare
  mine bigint := cnapi_lock_queue_of(p_uuid);
  moment timestamptz := cnapi_now();
begin
  return query
    update cnapi_waitlist_tickets t
      set expires_at = coalesce(p_expires_at, moment + p_expires_in_ms * interval '1 ms'),
        expires_text = p_expires_text, updated_at = moment
      where t.uuid = p_uuid and t.queue = mine and t.status in ('queued', 'active')
        and t.expires_at > moment
      returning t.uuid, t.status, false;
  if found then
    return;
  end if;
  return query
    update cnapi_waitlist_tickets t set status = 'expired', updated_at = moment
      where t.uuid = p_uuid and t.queue = mine and t.status in ('queued', 'active')
      returning t.uuid, t.status, true;
  if found then
    return query select a.uuid, a.status, true from cnapi_advance_queue(mine, moment) a;
  else
    return query
      select t.uuid, t.status, false from cnapi_waitlist_tickets t where t.uuid = p_uuid;
  end if;
end $$;

-- Deletes a ticket of any status. Returns it as 'deleted', and the tickets that moved as a result.
create function cnapi_delete_ticket(p_uuid uuid) returns table (uuid uuid, status text)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  mine bigint := cnapi_lock_queue_of(p_uuid);
  moment timestamptz := cnapi_now();
begin
  return query
    delete from cnapi_waitlist_tickets t where t.uuid = p_uuid returning t.uuid, 'deleted';
  if mine is not null then
    return query select a.uuid, a.status from cnapi_advance_queue(mine, moment) a;
  end if;
end $$;
