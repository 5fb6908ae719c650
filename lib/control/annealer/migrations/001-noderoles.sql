-- Noderoles: roles bound to servers, in a graph. cnapi_next_noderole draws the states. Definitions of
-- roles and deployments are documents.
--
-- Every function locks rows of noderoles in order of (cohort, id). A parent's cohort is lower than
-- that of its children, so functions that change parents and then their children keep to it.

-- One row, from the first binding on. The graph's shape changes only under its lock; the version says
-- that it has.
create table cnapi_annealer (
  id int primary key default 1 check (id = 1),
  graph_version bigint not null default 0
);

-- blocked_by       the noderole in error because of which this one is blocked, directly or not
-- noderole_run     its run that has not ended, while it is in transition
-- is_stale         its inputs have changed since that run began
-- run_count        runs that have succeeded
-- failures         attempts that have failed since the last success, commit or retry
-- due_tick         by the counter of deadlines: not claimed before, because an attempt has failed
-- proposed_data    what the next commit makes its data; null: what is committed
-- wall             what its last run returned and was not sent
-- error            of its last attempt, if that failed: code and message
-- actor            who committed it last; its tasks are theirs
create table cnapi_noderoles (
  id uuid not null,
  role text not null,
  server_uuid uuid not null,
  deployment_id uuid not null,
  state text not null default 'proposed'
    check (state in ('proposed', 'blocked', 'todo', 'transition', 'active', 'error')),
  cohort int not null check (cohort >= 0),
  blocked_by uuid,
  noderole_run uuid,
  is_stale boolean not null default false,
  run_count int not null default 0,
  failures int not null default 0,
  due_tick bigint not null default 0,
  proposed_data jsonb,
  committed_data jsonb not null default '{}',
  wall jsonb not null default '{}',
  error json,
  actor text,
  created_at timestamptz not null default cnapi_now(),
  state_since timestamptz not null default cnapi_now(),
  check (state = 'blocked' or blocked_by is null),
  check ((state = 'transition') = (noderole_run is not null)),
  check (noderole_run is not null or not is_stale)
) with (fillfactor = 70);
create unique index cnapi_noderoles_bound on cnapi_noderoles (server_uuid, role);
create index cnapi_noderoles_of_deployment on cnapi_noderoles (deployment_id, role, cohort, id);
create index cnapi_noderoles_in_order on cnapi_noderoles (cohort, id);
create index cnapi_noderoles_due on cnapi_noderoles (cohort, id) where state = 'todo';
alter table cnapi_noderoles add primary key (id);

-- is_order_only    orders the two, and does not stop the deletion of the parent
create table cnapi_noderole_edges (
  parent uuid not null references cnapi_noderoles (id),
  child uuid not null references cnapi_noderoles (id) on delete cascade,
  is_order_only boolean not null
);
create index cnapi_noderole_edges_of_parent on cnapi_noderole_edges (parent);
alter table cnapi_noderole_edges add primary key (child, parent);

-- One run of a noderole: an attempt. It keeps its server until it ends, also if its noderole is
-- proposed again meanwhile.
--
-- max_failures     attempts that may fail before the noderole is in error; null: any number
-- retry_ticks      how long the next attempt waits after a failed one
-- inputs           what its wall is compared with, until the run ends; null: a jig without a script
-- task             that carries it out
-- outcome          failed: another attempt may follow. final: none does. refused: it did not begin, so
--                  it does not count
-- wall             what it returned, unless it was among the inputs
create table cnapi_noderole_runs (
  id uuid not null,
  noderole uuid not null,
  server_uuid uuid not null,
  max_failures int,
  retry_ticks bigint not null,
  inputs jsonb,
  task uuid,
  outcome text check (outcome in ('succeeded', 'failed', 'refused', 'final')),
  wall jsonb,
  error json,
  started_at timestamptz not null default cnapi_now(),
  ended_at timestamptz,
  check ((ended_at is null) = (outcome is null))
);
create unique index cnapi_noderole_runs_of_server on cnapi_noderole_runs (server_uuid) where ended_at is null;
create index cnapi_noderole_runs_of_noderole on cnapi_noderole_runs (noderole, started_at desc);
create index cnapi_noderole_runs_ended on cnapi_noderole_runs (ended_at) where ended_at is not null;
alter table cnapi_noderole_runs add primary key (id);

-- What becomes of a noderole when something happens. p_parents: `active` if all are, `failed` if one
-- is in error or is blocked by one that is, otherwise `waiting`. Null: the event cannot happen in
-- this state. It is active only by a run, and a run begins only while all parents are active.
--
--     proposed ──commit──▶ blocked ◀──parents──▶ todo ──claim──▶ transition ──succeeded──▶ active
--                             ▲                  ▲  ▲                │   │                  │  │
--                             │                  │  └──postponed─────┘   └─failed─▶ error   │  │
--                             │                  └──commit, retry ─────────────────── │ ────┘  │
--                             └── a parent is no longer active ───────────────────────┴────────┘
--
-- commit           its proposed data was committed, and is other than before
-- parents-changed  a parent has another state. One that runs again leaves its active children
--                  active; one that fails blocks all of its descendants
-- postponed        an attempt has failed, and others are left
-- stale            the run has succeeded, on data that was changed meanwhile: it is repeated. One that has
--                  failed on such data is postponed, and does not count
-- succeeded        if a parent has failed during the run, the noderole is blocked, as if that had
--                  happened afterwards
-- propose          it is taken out until the next commit
create function cnapi_next_noderole(p_state text, p_event text, p_parents text) returns text
language sql immutable as $$
  select case p_event
    when 'propose' then 'proposed'
    when 'commit' then case when p_state = 'transition' then p_state
      when p_parents = 'active' then 'todo' else 'blocked' end
    when 'parents-changed' then case
      when p_state = 'blocked' and p_parents = 'active' then 'todo'
      when p_state in ('todo', 'error') and p_parents <> 'active' then 'blocked'
      when p_state = 'active' and p_parents = 'failed' then 'blocked'
      else p_state end
    when 'claim' then case when p_state = 'todo' and p_parents = 'active' then 'transition' end
    when 'retry' then case when p_state = 'error' and p_parents = 'active' then 'todo' end
    else case when p_state = 'transition' then case
      when p_event = 'succeeded' then case when p_parents = 'failed' then 'blocked' else 'active' end
      when p_event in ('stale', 'postponed') then case when p_parents = 'active' then 'todo' else 'blocked' end
      when p_event = 'failed' then 'error' end end
  end
$$;

-- How the parents of a noderole are, and which noderole in error is the reason.
create function cnapi_noderole_parents(p_noderole uuid) returns table (parents text, blocked_by uuid)
language sql stable as $$
  select case when count(*) filter (where n.state <> 'active') = 0 then 'active'
      when count(*) filter (where n.state = 'error' or n.blocked_by is not null) > 0 then 'failed'
      else 'waiting' end,
    (array_agg(case when n.state = 'error' then n.id else n.blocked_by end order by n.cohort, n.id)
      filter (where n.state = 'error' or n.blocked_by is not null))[1]
    from cnapi_noderole_edges e join cnapi_noderoles n on n.id = e.parent
    where e.child = p_noderole
$$;

-- Locks the shape of the graph until the transaction ends. Returns its version.
create function cnapi_lock_graph() returns bigint language plpgsql volatile as $$
begin
  insert into cnapi_annealer default values on conflict do nothing;
  return (select a.graph_version from cnapi_annealer a for update);
end $$;
