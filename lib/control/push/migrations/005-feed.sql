-- The feed of a job that belongs to an organization: what happened to it and its nodes, in the
-- words of Chef, numbered 1, 2, 3 … Number 1, `start`, is the job's own row. The coordinator writes
-- the rest in its rounds, which lock the job's row; so there is one writer at a time, and any
-- instance can send the feed again from any number.
--
-- A row holds events that differ only in their node: those numbered last - cardinality(nodes) + 1
-- to last; one event if it has no nodes. `at` is the time of its first event, each further one is a
-- microsecond later: no two events of a feed have the same time.
create table cnapi_push_feed (
  job uuid not null references cnapi_push_jobs on delete cascade,
  last int not null,
  name text not null,
  status text,
  nodes text[],
  at timestamptz not null,
  primary key (job, last)
);

-- What the feed tells of a node whose state was p_was in the last round. One round may see several
-- steps together.
create function cnapi_events_of_push_node(p_was text, p_state text, p_reason text)
returns table (place int, name text, status text) language sql immutable as $$
  with node as (
    select p_state = 'failed' and coalesce(p_reason, '') = 'permission-denied' as is_denied,
      p_state = 'unavailable' and cnapi_is_push_start_refused(p_reason) as is_refused,
      coalesce(p_reason, '') in ('down', 'restarted', 'stopping') as is_gone
  ), event as (
    select 1 as place, 'quorum_vote' as name, case
        when p_was = 'new' and (p_state = 'nacked' or n.is_denied) then 'failure'
        when p_was in ('new', 'ready') and p_state = 'unavailable' and n.is_gone then 'down'
        when p_was = 'new' and p_state = 'unavailable' and not n.is_refused then 'voting_timeout'
        when p_was = 'new' then 'success'
        when p_was = 'ready' and p_state = 'unavailable' and not n.is_refused
          then 'lost_availibility' end as status
      from node n
    union all
    select 3, 'run_start', '' from node n
      where p_was in ('new', 'ready') and not n.is_denied
        and p_state in ('running', 'succeeded', 'failed', 'crashed', 'aborted')
    union all
    select 4, 'rehab', '' from node n
      where p_state = 'crashed'
        or p_state = 'unavailable' and (p_was = 'ready' or n.is_refused or n.is_gone)
    union all
    select 5, 'run_complete', case
        when p_state = 'succeeded' then 'success'
        when p_state = 'failed' and not n.is_denied then 'failure'
        when p_state in ('crashed', 'aborted') then p_state
        when n.is_refused then 'run_nacked' end
      from node n
  )
  select e.place, e.name, nullif(e.status, '') from event e where e.status is not null
$$;

-- Adds what has happened to at most p_most nodes since the last round, and the end of the job, if
-- p_outcome says how it ends: then the caller has told the ends of all nodes. new_events: how many
-- were added. more: there was more to tell than p_most. The caller has locked the job's row, so no
-- node changes. Nodes whose rows are locked are left for a later round (law 9).
create function cnapi_feed_push_job(
  p_job uuid, p_outcome text, p_most int, out new_events int, out more boolean
) language plpgsql volatile
  set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
declare
  belongs boolean;
  is_new_quorum boolean;
  last_event int;
  first_at timestamptz;
  picked uuid[];
begin
  new_events := 0;
  more := false;
  select j.organization is not null, j.state = 'running' and not j.has_run, j.last_event,
      greatest(cnapi_now(), coalesce(j.last_event_at, j.created_at) + interval '1 microsecond')
    into belongs, is_new_quorum, last_event, first_at
    from cnapi_push_jobs j where j.id = p_job;
  if not coalesce(belongs, false) then
    return;
  end if;
  picked := array(
    select n.server_uuid from cnapi_push_nodes n
      where n.job = p_job and n.feed_state <> n.state
      order by n.server_uuid limit p_most for update skip locked);
  more := cardinality(picked) = p_most;
  with told as (
    select e.place, e.name, e.status, n.name as node,
        (row_number() over (partition by e.place, e.status order by n.server_uuid) - 1) / 500 as part
      from cnapi_push_nodes n
      cross join lateral cnapi_events_of_push_node(n.feed_state, n.state, n.reason) as e
      where n.job = p_job and n.server_uuid = any (picked)
    union all
    select 2, 'quorum_succeeded', null, null, 0 where is_new_quorum
    union all
    select 6, 'job_complete', p_outcome, null, 0 where p_outcome is not null
  ), rows as (
    select t.place, t.name, t.status, t.part, count(*) as count,
        case when t.place not in (2, 6) then array_agg(t.node) end as nodes
      from told t group by t.place, t.name, t.status, t.part
  ), numbered as (
    select r.*, sum(r.count) over (order by r.place, r.status, r.part) as up_to from rows r
  ), inserted as (
    insert into cnapi_push_feed (job, last, name, status, nodes, at)
      select p_job, last_event + n.up_to, n.name, n.status, n.nodes,
          first_at + (n.up_to - n.count) * interval '1 microsecond'
        from numbered n
      returning last
  )
  select coalesce(max(i.last) - last_event, 0) into new_events from inserted i;
  if new_events > 0 then
    update cnapi_push_jobs j
      set last_event = j.last_event + new_events,
          last_event_at = first_at + (new_events - 1) * interval '1 microsecond',
          has_run = j.has_run or is_new_quorum
      where j.id = p_job;
  end if;
  update cnapi_push_nodes n set feed_state = n.state
    where n.job = p_job and n.server_uuid = any (picked);
end $$;
