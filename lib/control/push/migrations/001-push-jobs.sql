-- Push jobs: one command on many servers (lib/control/push/push-job.ts draws the states).
--
-- options          what the command is given, without its file: user, dir, env, capture
-- masked_options   what everybody is shown instead if options hold secrets; at the end of the job
--                  it replaces them
-- file             only until the end of the job; has_file: whether the job brought one
-- quorum_percent   if the quorum is a share of the nodes: it follows nodes that are added
-- start_rate       nodes that may start per second; start_bucket_full_at: when the token
--                  bucket of this rate is full again (StartRateLimiter), by the database's clock
-- organization     its uuid, for a job of /pushy; requestor: the name of its user or client
-- ending           the outcome that an aborting job will have; is_soft: started commands may end
-- abort_requested  by a caller; the holder of the duty carries it out
-- node_timeout_ms  the limit of each command; without it only the job's run_timeout_ms
-- state_tick, created_tick
--                  by the counter of deadlines: no clock step ends a job. created_tick: when it
--                  began to ask its agents
-- ticket           that it holds while it asks and runs, as callers see it (006-tickets.sql)
-- timeout_changes  how many times its holder has given started nodes other limits
-- bytes            of the command and the options that are shown: what the job adds to a page of a
--                  list
-- counts           how many nodes are in each state, once the job has ended and none changes any
--                  more
-- idempotency_key  by which its actor may repeat the request; request_hash: of what it asked for
-- last_event, last_event_at
--                  number and time of the last event of its feed (005-feed.sql); has_run: the feed
--                  has told that the quorum was reached. Only for a job of an organization
create table cnapi_push_jobs (
  id uuid not null,
  organization text collate "C",
  command text not null,
  options json not null,
  masked_options json,
  file bytea,
  has_file boolean not null default false,
  actor text,
  requestor text,
  node_count int not null,
  idempotency_key text collate "C",
  request_hash text,
  timeout_changes int not null default 0,
  bytes int not null default 0,
  counts jsonb,
  quorum int not null check (quorum >= 1),
  quorum_percent float8,
  concurrency int check (concurrency >= 1),
  start_rate float8 check (start_rate > 0),
  start_bucket_full_at timestamptz,
  max_failures int check (max_failures >= 0),
  voting_timeout_ms int not null,
  run_timeout_ms int not null,
  node_timeout_ms int,
  abort_timeout_ms int not null,
  state text not null default 'voting'
    check (state in ('waiting', 'voting', 'running', 'aborting', 'ended')),
  outcome text check (outcome in ('complete', 'quorum_failed', 'timed_out', 'aborted')),
  ending text,
  is_soft boolean not null default false,
  reason text,
  abort_requested text check (abort_requested in ('soft', 'hard')),
  abort_actor text,
  ticket jsonb,
  created_at timestamptz not null default cnapi_now(),
  state_since timestamptz not null default cnapi_now(),
  created_tick bigint not null default cnapi_tick(),
  state_tick bigint not null default cnapi_tick(),
  last_event int not null default 1,
  last_event_at timestamptz,
  has_run boolean not null default false,
  check ((state = 'ended') = (outcome is not null)),
  check ((state = 'aborting') <= (ending is not null)),
  check (file is null or has_file)
) with (fillfactor = 70);
create unique index cnapi_push_jobs_idempotency on cnapi_push_jobs (coalesce(actor, ''), idempotency_key)
  where idempotency_key is not null;
create index cnapi_push_jobs_unfinished on cnapi_push_jobs (id) where state <> 'ended';
create index cnapi_push_jobs_ended on cnapi_push_jobs (state_since) where state = 'ended';
create index cnapi_push_jobs_ended_of_organization on cnapi_push_jobs (organization, state_since, id)
  where state = 'ended' and organization is not null;
create index cnapi_push_jobs_created on cnapi_push_jobs (created_at desc, id desc);
create index cnapi_push_jobs_of_organization on cnapi_push_jobs (organization, created_at desc, id desc)
  where organization is not null;
-- Lists of one status: as /push-jobs shows it, and as organizations do (organization-jobs-store.ts).
create index cnapi_push_jobs_status on cnapi_push_jobs (coalesce(outcome, state), created_at desc, id desc);
create index cnapi_push_jobs_organization_status on cnapi_push_jobs (
  organization,
  coalesce(outcome,
    case when state = 'running' or (state = 'aborting' and has_run) then 'running' else 'voting' end),
  created_at desc, id desc
) where organization is not null;
-- The last one: tasks/migrations/002-tasks.sql has the reason.
alter table cnapi_push_jobs add primary key (id);

-- A node: one server in one job. `name` is the server's hostname when the job was created;
-- `incarnation` the process of the agent that voted; `task` the run of the command;
-- `abort_requested`, by a caller, for this node alone: the holder of the duty carries it out;
-- `is_cancelled` that the end of its task was requested;
-- `run_ms` for how long the job had run when the node was given its task; `timeout_ms` the limit of
-- the task; `timeout_change` the number of the job's change that gave it another one, or 0;
-- `feed_state` the state that the feed of the job has told.
create table cnapi_push_nodes (
  job uuid not null references cnapi_push_jobs on delete cascade,
  server_uuid uuid not null,
  name text not null,
  state text not null default 'new' check (state in ('new', 'ready', 'running', 'succeeded',
    'failed', 'aborted', 'crashed', 'nacked', 'unavailable', 'timed_out', 'was_ready')),
  reason text check (reason in ('busy', 'not-allowed', 'bad-options', 'paused', 'stopping',
    'waited-too-long', 'unsupported', 'refused', 'permission-denied', 'down', 'restarted', 'no-vote',
    'node-aborted', 'job-ended', 'given-up', 'TaskTimeout', 'Aborted', 'Cancelled', 'AgentStopped',
    'StartRefused', 'NotTaken', 'AgentPaused', 'AgentFull', 'UnknownTask', 'TaskError', 'SpawnFailed',
    'InvalidParameters', 'AgentRestarted', 'OutcomeUnknown')),
  message text,
  busy_with uuid,
  incarnation uuid,
  task uuid,
  run_ms int,
  timeout_ms int,
  timeout_change int not null default 0,
  exit_code int,
  abort_requested text check (abort_requested in ('soft', 'hard')),
  is_cancelled boolean not null default false,
  feed_state text not null default 'new',
  updated_at timestamptz not null default cnapi_now()
) with (fillfactor = 70);
create index cnapi_push_nodes_asked on cnapi_push_nodes (server_uuid) where state = 'new';
create index cnapi_push_nodes_timeouts on cnapi_push_nodes (server_uuid)
  where timeout_change > 0 and state in ('ready', 'running');
create index cnapi_push_nodes_timeout_changes on cnapi_push_nodes (job, timeout_change)
  where timeout_change > 0 and state in ('ready', 'running');
alter table cnapi_push_nodes add primary key (job, server_uuid);

-- Whether a node in this state has not ended: OPEN_NODE_STATUSES in lib/protocol/push.ts.
create function cnapi_is_push_node_open(p_state text) returns boolean language sql immutable as $$
  select p_state in ('new', 'ready', 'running')
$$;

-- Whether a task ended with this error because its agent refused to start it, or never took it.
create function cnapi_is_push_start_refused(p_reason text) returns boolean
language sql immutable as $$
  select coalesce(p_reason, '')
    in ('StartRefused', 'NotTaken', 'AgentPaused', 'AgentFull', 'UnknownTask')
$$;

-- What becomes of a node when something happens. docs/design/push-jobs.md compares it with the
-- specification's table (5.7.2).
--
--     new ──voted──▶ ready ──it gets its task──▶ starting ──started──▶ running ──succeeded, …
--      └── it votes no, is down, …  └── aborted, …  └── its start is refused, …
--
-- The stage of a node that has not ended is its state, or `starting`: it is `ready` and has its
-- task. An event is one of these four, or the reason that the node has afterwards: the agent votes
-- `ready` and takes part (voted), its command starts, ends with 0 (succeeded), or otherwise
-- (failed). An ended node leaves its server in rehab, unless the agent itself has said that it has
-- nothing more to do with the job: it withdrew its vote, or reported the end of a command that had
-- started.
--
-- Null if the event cannot happen in this stage: so a statement that picks a node for it by mistake
-- fails. p_is_late: the job ends because its time is over.
--
-- Postgres inlines this and its neighbours, if what they are given is cheap to compute: a call for
-- each of many rows costs no more than the expression.
create function cnapi_next_push_node(p_stage text, p_event text, p_is_late boolean) returns text
language sql immutable as $$
  select case
    when p_event = 'voted' then case p_stage when 'new' then 'ready' end
    -- It votes no, now or after it had voted `ready`. busy: the agent is in another job, or another
    -- job has its server.
    when p_event in ('busy', 'not-allowed', 'bad-options', 'paused') then
      case p_stage when 'new' then 'nacked' when 'ready' then 'unavailable' end
    when p_event in ('stopping', 'waited-too-long', 'unsupported', 'refused') then
      case when p_stage in ('new', 'ready') then 'unavailable' end
    -- The caller may not run commands there.
    when p_event = 'permission-denied' then case p_stage when 'new' then 'failed' end
    -- The server is `unknown`; its agent is another process than the one that voted.
    when p_event = 'down' then case p_stage when 'running' then 'crashed' else 'unavailable' end
    when p_event = 'restarted' then
      case p_stage when 'new' then null when 'running' then 'crashed' else 'unavailable' end
    -- The voting is over.
    when p_event = 'no-vote' then case p_stage when 'new' then 'unavailable' end
    -- A caller aborts this node. One that has its task is cancelled, as when the job is aborted.
    when p_event = 'node-aborted' then
      case p_stage when 'new' then 'unavailable' when 'ready' then 'was_ready' end
    when p_event = 'job-ended' then case p_stage when 'new' then 'unavailable'
      when 'ready' then case when p_is_late then 'timed_out' else 'was_ready' end end
    -- The job ends although the node has not.
    when p_event = 'given-up' then case when p_stage = 'new' then 'unavailable'
      when p_is_late then 'timed_out' when p_stage = 'running' then 'aborted' else 'was_ready' end
    -- How its command, or its task, has ended.
    when p_stage in ('starting', 'running') then case
      when p_event = 'started' then 'running'
      when p_event = 'succeeded' then 'succeeded'
      when p_event in ('failed', 'TaskError', 'SpawnFailed', 'InvalidParameters') then 'failed'
      when p_event in ('Aborted', 'Cancelled') then case
        when p_is_late then 'timed_out' when p_stage = 'running' then 'aborted' else 'was_ready' end
      when p_event = 'TaskTimeout' then 'timed_out'
      when p_event = 'AgentStopped' then 'aborted'
      -- If its command has begun, nobody knows how far it came.
      when cnapi_is_push_start_refused(p_event) then
        case p_stage when 'running' then 'crashed' else 'unavailable' end
      when p_event in ('AgentRestarted', 'OutcomeUnknown') then 'crashed' end
    end
$$;

-- The reason of a node after this event.
create function cnapi_push_node_reason(p_event text) returns text language sql immutable as $$
  select case when p_event in ('voted', 'started', 'succeeded', 'failed') then null else p_event end
$$;

-- What a task that has started, or has ended, means for its node. Only 0 is a success: without a
-- code nobody knows how the command ended.
create function cnapi_push_node_event(
  p_has_ended boolean, p_outcome text, p_exit_code int, p_error_code text
) returns text language sql immutable as $$
  select case
    when not p_has_ended then 'started'
    when p_outcome = 'complete' and p_exit_code = 0 then 'succeeded'
    when p_outcome = 'complete' then 'failed'
    when cnapi_is_push_start_refused(p_error_code)
      or p_error_code in ('TaskTimeout', 'Aborted', 'Cancelled', 'AgentStopped', 'TaskError',
        'SpawnFailed', 'InvalidParameters', 'AgentRestarted') then p_error_code
    else 'OutcomeUnknown' end
$$;

-- The limit of a command that starts when its job has run for p_run_ms.
create function cnapi_push_timeout(p_run_timeout_ms int, p_node_timeout_ms int, p_run_ms int)
returns int language sql immutable as $$
  select greatest(1, least(p_run_timeout_ms - p_run_ms, p_node_timeout_ms))
$$;

-- How many nodes of a job are in each state.
create function cnapi_count_push_nodes(p_job uuid) returns jsonb language sql stable as $$
  select coalesce(jsonb_object_agg(c.state, c.count), '{}')
    from (
      select n.state, count(*) as count from cnapi_push_nodes n where n.job = p_job group by n.state
    ) as c
$$;

-- The servers that take part in a job, or are in rehab. The primary key limits a server to one job
-- at a time.
create table cnapi_push_busy (
  server_uuid uuid primary key,
  job uuid not null,
  rehab_since timestamptz
) with (fillfactor = 50);
create index cnapi_push_busy_rehab on cnapi_push_busy (server_uuid) where rehab_since is not null;

-- An end is final, whichever statement writes.
create function cnapi_push_refuse() returns trigger language plpgsql as $$
begin
  raise exception '% of push job % has ended as % and cannot become %', tg_argv[0],
    case tg_argv[0] when 'node' then to_json(old)->>'job' else to_json(old)->>'id' end,
    old.state, new.state;
end $$;

create trigger cnapi_push_guard before update on cnapi_push_nodes
  for each row when (not cnapi_is_push_node_open(old.state) and new.state <> old.state)
  execute function cnapi_push_refuse('node');

create trigger cnapi_push_guard before update on cnapi_push_jobs
  for each row when (old.state = 'ended' and new.state <> old.state)
  execute function cnapi_push_refuse('state');

-- A job's secrets end with it, and so does its file, which no agent is given any more.
create function cnapi_push_forget_contents() returns trigger language plpgsql as $$
begin
  new.options := coalesce(new.masked_options, new.options);
  new.file := null;
  return new;
end $$;

create trigger cnapi_push_forget_contents before update on cnapi_push_jobs
  for each row when (new.state = 'ended' and old.state <> 'ended'
    and (new.masked_options is not null or new.file is not null))
  execute function cnapi_push_forget_contents();
