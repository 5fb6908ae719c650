-- Steps of noderoles, and what follows for their descendants.

-- Ticks before a noderole that has failed so often is tried again, whatever its role says: none after
-- the first failure, then doubling to a minute. So one that fails forever does not keep others waiting.
create function cnapi_retry_pause(p_failures int) returns bigint language sql immutable as $$
  select least(60, (1 << least(greatest(p_failures, 1) - 1, 6)) - 1)::bigint
$$;

-- Each of these noderoles gets its event, each child of one that has changed gets `parents-changed`,
-- and so on. One cohort after the other: a noderole is locked, and its parents are read, when all of
-- its ancestors have changed. So of two parents that become active at the same time, the later one
-- sees both. Nothing but what changes and its children is locked. Returns what has changed.
--
-- `ended`: the run that the noderole has at present has ended; its row says how. One that has no
-- such run gets `parents-changed`. `commit` takes over the proposed data; p_actor
-- is who commits.
create function cnapi_step_noderoles(p_ids uuid[], p_events text[], p_actor text default null)
returns setof uuid language plpgsql volatile as $$
declare
  pending uuid[] := p_ids;
  done uuid[] := '{}';
  level int;
  batch uuid[];
  changed uuid[];
  refused text;
begin
  loop
    -- Null: what is pending has been deleted.
    level := (select min(n.cohort) from cnapi_noderoles n where n.id = any (pending));
    exit when level is null;
    batch := array(
      select n.id from cnapi_noderoles n where n.id = any (pending) and n.cohort = level
        order by n.id for no key update);
    -- A binding has moved them to a later cohort while this waited for them.
    continue when batch = '{}';
    -- A new statement: it sees what others have committed before they released the locks.
    with event as (
      select n.id, r.wall, r.error, r.retry_ticks, r.outcome, p.parents, p.blocked_by,
          case when e.event is null or d.id is not null then 'parents-changed'
            when e.event <> 'ended' then e.event
            when r.outcome is null then 'parents-changed'
            when r.outcome = 'succeeded' and n.is_stale then 'stale'
            when r.outcome = 'succeeded' then 'succeeded'
            when r.outcome = 'final' and not n.is_stale then 'failed'
            when n.is_stale or r.outcome = 'refused' or r.max_failures is null
              or n.failures + 1 < r.max_failures then 'postponed'
            else 'failed' end as name
        from cnapi_noderoles n
        left join unnest(p_ids, p_events) as e (id, event) on e.id = n.id
        left join unnest(done) as d (id) on d.id = n.id
        left join cnapi_noderole_runs r on r.id = n.noderole_run
        cross join lateral cnapi_noderole_parents(n.id) p
        where n.id = any (batch)
    ), step as materialized (
      -- A parent may have changed since a retry was allowed.
      select e.*, coalesce(cnapi_next_noderole(n.state, e.name, e.parents),
          case e.name when 'retry' then cnapi_next_noderole(n.state, 'parents-changed', e.parents) end) as next
        from event e join cnapi_noderoles n on n.id = e.id
    ), written as (
      update cnapi_noderoles n
        set state = s.next,
          blocked_by = case when s.next = 'blocked' then s.blocked_by end,
          noderole_run = case when s.next = 'transition' then n.noderole_run end,
          is_stale = s.next = 'transition' and (n.is_stale or s.name = 'commit'),
          state_since = case when s.next = n.state then n.state_since else cnapi_now() end,
          committed_data = case s.name when 'commit' then coalesce(n.proposed_data, n.committed_data)
            else n.committed_data end,
          proposed_data = case s.name when 'commit' then null else n.proposed_data end,
          actor = case s.name when 'commit' then p_actor else n.actor end,
          wall = case when s.name in ('succeeded', 'stale') then coalesce(s.wall, n.wall) else n.wall end,
          error = case when s.name in ('postponed', 'failed') then s.error
            when s.name in ('succeeded', 'stale') then null else n.error end,
          run_count = n.run_count + (s.name in ('succeeded', 'stale'))::int,
          failures = case when s.name in ('postponed', 'failed') and s.outcome <> 'refused' and not n.is_stale
              then n.failures + 1
            when s.name in ('succeeded', 'stale', 'commit', 'retry') or n.is_stale then 0 else n.failures end,
          due_tick = case when s.name = 'parents-changed' then n.due_tick
            when s.name <> 'postponed' or n.is_stale then 0
            when s.outcome = 'refused' then cnapi_tick() + greatest(s.retry_ticks, 10)
            else cnapi_tick() + greatest(s.retry_ticks, cnapi_retry_pause(n.failures + 1)) end
        from step s
        where n.id = s.id and s.next is not null
          and (s.name <> 'parents-changed' or s.next <> n.state
            or n.blocked_by is distinct from case when s.next = 'blocked' then s.blocked_by end)
        returning n.id
    )
    select array(select w.id from written w),
        (select string_agg(format('noderole %s cannot have the event %s', s.id, s.name), '; ')
          from step s where s.next is null)
      into changed, refused;
    if refused is not null then
      raise exception '%', refused;
    end if;
    return query select unnest(changed);
    done := done || batch;
    pending := array(
      select unnest(pending) except select unnest(batch)
      union select e.child from cnapi_noderole_edges e where e.parent = any (changed));
  end loop;
end $$;

-- Adds noderoles and edges that were planned for this version of the graph, and proposes p_data for
-- p_data_ids, which may exist already. False: the graph has changed since; plan again.
create function cnapi_bind_noderoles(
  p_version bigint, p_ids uuid[], p_roles text[], p_servers uuid[], p_deployments uuid[], p_cohorts int[],
  p_parents uuid[], p_children uuid[], p_order_only boolean[], p_data_ids uuid[], p_data jsonb
) returns boolean language plpgsql volatile as $$
declare
  raised uuid[];
  older uuid[];
  rounds int := 0;
begin
  if cnapi_lock_graph() <> p_version then
    return false;
  end if;
  update cnapi_annealer a set graph_version = a.graph_version + 1 where cardinality(p_ids) > 0;
  insert into cnapi_noderoles (id, role, server_uuid, deployment_id, cohort)
    select n.id, n.role, n.server_uuid, n.deployment_id, n.cohort
      from unnest(p_ids, p_roles, p_servers, p_deployments, p_cohorts)
        as n (id, role, server_uuid, deployment_id, cohort);
  insert into cnapi_noderole_edges (parent, child, is_order_only)
    select e.parent, e.child, e.is_order_only
      from unnest(p_parents, p_children, p_order_only) as e (parent, child, is_order_only);
  -- Noderoles that existed and have got a new member of a cluster as a parent, which may be of a
  -- later cohort.
  older := array(select distinct c from unnest(p_children) as c except select unnest(p_ids));
  raised := older;
  while raised <> '{}' loop
    rounds := rounds + 1;
    if rounds > 1000 then
      raise exception 'noderoles would require each other';
    end if;
    raised := array(
      select n.id from cnapi_noderoles n
        where n.id = any (raised) and exists (
          select 1 from cnapi_noderole_edges e join cnapi_noderoles p on p.id = e.parent
            where e.child = n.id and p.cohort >= n.cohort)
        order by n.cohort, n.id for no key update);
    update cnapi_noderoles n
      set cohort = 1 + (select max(p.cohort) from cnapi_noderole_edges e join cnapi_noderoles p on p.id = e.parent
        where e.child = n.id)
      where n.id = any (raised);
    raised := array(select distinct e.child from cnapi_noderole_edges e where e.parent = any (raised));
  end loop;
  update cnapi_noderoles n set proposed_data = nullif(p_data, n.committed_data)
    where n.id = any (array(
      select o.id from cnapi_noderoles o where o.id = any (p_data_ids) order by o.cohort, o.id for no key update));
  -- What waits for a noderole that is not active yet is blocked by it.
  perform cnapi_step_noderoles(older, '{}');
  return true;
end $$;

-- Commits what is proposed in a deployment. What has no change keeps its state.
create function cnapi_commit_deployment(
  p_deployment uuid, p_actor text, p_duty uuid, p_duty_kind text)
returns table (committed int, due int) language plpgsql volatile as $$
declare
  picked uuid[];
begin
  -- No binding at the same time: a commit has all of it, or nothing.
  perform cnapi_lock_graph();
  picked := array(
    select n.id from cnapi_noderoles n
      where n.deployment_id = p_deployment and (n.state = 'proposed' or n.proposed_data is not null));
  perform cnapi_step_noderoles(picked, array(select 'commit' from unnest(picked)), p_actor);
  -- From the first commit on, an instance carries the graph out.
  perform cnapi_create_duties(array[p_duty], p_duty_kind);
  return query select cardinality(picked),
    (select count(*)::int from cnapi_noderoles n where n.id = any (picked) and n.state = 'todo');
end $$;

-- Another try after a failure, if the state allows it. No row: there is no such noderole.
create function cnapi_retry_noderole(p_noderole uuid)
returns table (is_done boolean, state text, blocked_by uuid) language plpgsql volatile as $$
declare
  noderole cnapi_noderoles;
  around record;
begin
  select * into noderole from cnapi_noderoles n where n.id = p_noderole for no key update;
  if noderole.id is null then
    return;
  end if;
  select * into around from cnapi_noderole_parents(p_noderole);
  if cnapi_next_noderole(noderole.state, 'retry', around.parents) is null then
    return query select false, noderole.state, around.blocked_by;
    return;
  end if;
  perform cnapi_step_noderoles(array[p_noderole], array['retry']);
  return query select true, 'todo', null::uuid;
end $$;

-- Deletes a noderole that no other requires and that has no run. What only comes after it is no
-- longer blocked by it. No row: there is no such noderole.
create function cnapi_delete_noderole(p_noderole uuid) returns table (outcome text)
language plpgsql volatile as $$
declare
  freed uuid[];
begin
  perform cnapi_lock_graph();
  perform 1 from cnapi_noderoles n where n.id = p_noderole for update;
  if not found then
    return;
  end if;
  if exists (select 1 from cnapi_noderole_edges e where e.parent = p_noderole and not e.is_order_only) then
    return query select 'required';
    return;
  end if;
  if exists (select 1 from cnapi_noderole_runs r where r.noderole = p_noderole and r.ended_at is null) then
    return query select 'runs';
    return;
  end if;
  update cnapi_annealer a set graph_version = a.graph_version + 1;
  freed := array(select e.child from cnapi_noderole_edges e where e.parent = p_noderole);
  delete from cnapi_noderole_edges e where p_noderole in (e.parent, e.child);
  delete from cnapi_noderoles n where n.id = p_noderole;
  perform cnapi_step_noderoles(freed, '{}');
  return query select 'deleted';
end $$;
