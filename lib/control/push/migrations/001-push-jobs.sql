-- Push jobs: one command on many servers (lib/control/push/push-job.ts draws the states).
--
-- options          what the command is given, without its file: user, dir, env, capture
-- masked_options   what everybody is shown instead if options hold secrets; at the end of the job
--                  it replaces them
-- quorum_percent   if the quorum is a share of the nodes: it follows nodes that are added
-- start_rate       nodes that may start per second
-- organization     its uuid, for a job of /pushy; requestor: the name of its user or client
-- ending           the outcome that an aborting job will have; is_soft: started commands may end
-- abort_requested  by a caller; the holder of the duty carries it out
-- node_timeout_ms  the limit of each command; without it only the job's run_timeout_ms
-- state_tick, created_tick
--                  by the counter of deadlines: no clock step ends a job. created_tick: when it began
--                  to ask its agents
-- ticket           that it holds while it asks and runs, as callers see it (006-tickets.sql)
-- fed, fed_at      number and time of the last event of its feed (005-feed.sql); has_run: the feed
--                  has told that the quorum was reached. Only for a job of an organization
create table cnapi_push_jobs (
  id uuid primary key,
  organization text collate "C",
  command text not null,
  options json not null,
  masked_options json,
  file bytea,
  actor text,
  requestor text,
  node_count int not null,
  quorum int not null check (quorum >= 1),
  quorum_percent float8,
  concurrency int check (concurrency >= 1),
  start_rate float8 check (start_rate > 0),
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
  fed int not null default 1,
  fed_at timestamptz,
  has_run boolean not null default false,
  check ((state = 'ended') = (outcome is not null)),
  check ((state = 'aborting') <= (ending is not null))
) with (fillfactor = 70);
create index cnapi_push_jobs_unfinished on cnapi_push_jobs (id) where state <> 'ended';
create index cnapi_push_jobs_ended on cnapi_push_jobs (state_since) where state = 'ended';
create index cnapi_push_jobs_created on cnapi_push_jobs (created_at desc, id);
create index cnapi_push_jobs_of_organization on cnapi_push_jobs (organization, created_at desc, id desc)
  where organization is not null;

-- A node: one server in one job. `name` is the server's hostname when the job was created;
-- `incarnation` the process of the agent that voted; `task` the run of the command;
-- `abort_requested`, by a caller, for this node alone: the holder of the duty carries it out; `fed`
-- the state that the feed of the job has told.
create table cnapi_push_nodes (
  job uuid not null references cnapi_push_jobs on delete cascade,
  server_uuid uuid not null,
  name text not null,
  state text not null default 'new' check (state in ('new', 'ready', 'running', 'succeeded',
    'failed', 'aborted', 'crashed', 'nacked', 'unavailable', 'timed_out', 'was_ready')),
  reason text,
  message text,
  busy_with uuid,
  incarnation uuid,
  task uuid,
  exit_code int,
  abort_requested text check (abort_requested in ('soft', 'hard')),
  fed text not null default 'new',
  updated_at timestamptz not null default cnapi_now(),
  primary key (job, server_uuid)
) with (fillfactor = 70);
create index cnapi_push_nodes_asked on cnapi_push_nodes (server_uuid) where state = 'new';
create index cnapi_push_nodes_server on cnapi_push_nodes (server_uuid, updated_at desc);

-- The servers that take part in a job, or are in rehab. The key makes it one job at a time.
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
  for each row when (old.state not in ('new', 'ready', 'running') and new.state <> old.state)
  execute function cnapi_push_refuse('node');

create trigger cnapi_push_guard before update on cnapi_push_jobs
  for each row when (old.state = 'ended' and new.state <> old.state)
  execute function cnapi_push_refuse('state');

-- A job's secrets end with it.
create function cnapi_push_forget_secrets() returns trigger language plpgsql as $$
begin
  new.options := new.masked_options;
  new.file := null;
  return new;
end $$;

create trigger cnapi_push_forget_secrets before update on cnapi_push_jobs
  for each row when (new.state = 'ended' and old.state <> 'ended' and new.masked_options is not null)
  execute function cnapi_push_forget_secrets();
