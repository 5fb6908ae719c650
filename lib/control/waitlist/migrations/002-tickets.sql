-- `expires_text` is the expiry as the caller wrote it, null if it was a duration. `extra` has type
-- `json`, so it is returned exactly as it came. `actor`: the name of the caller that created it.
create table cnapi_waitlist_tickets (
  uuid uuid primary key,
  queue bigint not null,
  place bigint not null,
  server_uuid text collate "C" not null,
  scope text collate "C" not null,
  id text collate "C" not null,
  action text,
  extra json not null,
  reqid text,
  actor text,
  expires_at timestamptz not null,
  expires_text text,
  status text collate "C" not null check (status in ('queued', 'active', 'finished', 'expired')),
  created_at timestamptz not null,
  updated_at timestamptz not null,
  active_at timestamptz
) with (fillfactor = 70);

-- The alarm behind the queue's lock: one active ticket per queue. It also finds the holder.
create unique index cnapi_waitlist_active on cnapi_waitlist_tickets (queue)
  where status = 'active';
create unique index cnapi_waitlist_queued on cnapi_waitlist_tickets (queue, place)
  where status = 'queued';
create index cnapi_waitlist_ended on cnapi_waitlist_tickets (updated_at)
  where status in ('finished', 'expired');
create index cnapi_waitlist_server on cnapi_waitlist_tickets (server_uuid, created_at);

-- The planner cannot prove these conditions in a lookup for one queue, so it never reads all due
-- tickets, or all of a server, there (tasks/migrations/002-tasks.sql has the reason).
create index cnapi_waitlist_due on cnapi_waitlist_tickets (expires_at)
  where (status || '') in ('queued', 'active');
create index cnapi_waitlist_open on cnapi_waitlist_tickets (server_uuid)
  where (status || '') in ('queued', 'active');

-- An ended ticket does not change, and no ticket changes its place. The trigger has the condition,
-- so that an allowed update costs no function call.
create function cnapi_waitlist_refuse() returns trigger language plpgsql as $$
begin
  raise exception 'ticket % is % at place % of queue %: it cannot become % at place % of queue %',
    old.uuid, old.status, old.place, old.queue, new.status, new.place, new.queue;
end $$;

create trigger cnapi_waitlist_guard before update on cnapi_waitlist_tickets
  for each row
  when (
    old.status in ('finished', 'expired') or (old.status = 'active' and new.status = 'queued')
    or new.queue <> old.queue or new.place <> old.place
  )
  execute function cnapi_waitlist_refuse();
