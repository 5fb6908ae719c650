-- Tickets that jobs hold or wait for. A row says that a ticket must still be released, and is
-- deleted after the release. The job's duty waits for that, even if the job itself was deleted
-- meanwhile. ticket: null until the ticket exists. Tickets belong to the waitlist; the coordinator
-- asks it for them.
create table cnapi_push_tickets (
  job uuid primary key,
  ticket uuid,
  server_uuid text collate "C" not null,
  scope text collate "C" not null,
  id text collate "C" not null,
  expires_in int not null,
  timeout_ms int not null,
  actor text
);

-- Stores the uuid of the job's ticket.
create function cnapi_record_push_ticket(p_job uuid, p_run uuid, p_generation int, p_ticket uuid)
returns boolean language plpgsql volatile as $$
begin
  if not cnapi_lock_duty(p_job, p_run, p_generation) then
    return false;
  end if;
  update cnapi_push_jobs j set ticket = j.ticket || jsonb_build_object('uuid', p_ticket)
    where j.id = p_job;
  update cnapi_push_tickets t set ticket = p_ticket where t.job = p_job;
  return true;
end $$;

-- The ticket has been released: deletes its row.
create function cnapi_forget_push_ticket(p_job uuid, p_run uuid, p_generation int)
returns boolean language plpgsql volatile as $$
begin
  if not cnapi_lock_duty(p_job, p_run, p_generation) then
    return false;
  end if;
  delete from cnapi_push_tickets t where t.job = p_job;
  return true;
end $$;

-- A waiting job has its ticket: from now on its agents are asked. Those that are down take no part;
-- if their rows are locked, they count as nodes that do not vote.
create function cnapi_begin_push_voting(p_job uuid, p_run uuid, p_generation int) returns boolean
language plpgsql volatile as $$
declare
  moment timestamptz;
  picked uuid[];
begin
  if not cnapi_lock_duty(p_job, p_run, p_generation) then
    return false;
  end if;
  perform 1 from cnapi_push_jobs j
    where j.id = p_job and j.state = 'waiting' and j.abort_requested is null for update;
  if not found then
    return true;
  end if;
  moment := cnapi_now();
  update cnapi_push_jobs j
    set state = 'voting', state_since = moment, state_tick = cnapi_tick(), created_tick = cnapi_tick()
    where j.id = p_job;
  picked := array(
    select n.server_uuid from cnapi_push_nodes n where n.job = p_job and n.state = 'new'
      order by n.server_uuid for update skip locked);
  update cnapi_push_nodes n
    set state = cnapi_next_push_node('new', 'down', false), reason = 'down', updated_at = moment
    from cnapi_presence(picked) as p
    where n.job = p_job and n.state = 'new' and n.server_uuid = p.server_uuid and p.run is null;
  return true;
end $$;
