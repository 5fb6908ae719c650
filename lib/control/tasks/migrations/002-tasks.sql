-- One row for each task.
--
-- params, result, error, progress
--                `json`, not `jsonb`: passed on unchanged, NUL characters included
-- masked_params  what everybody is shown instead of params that hold secrets; at the task's end it
--                replaces them
-- uncertain      an earlier attempt may have run
-- posted_by      the run that posts, or has posted, the present attempt to a legacy agent; null for
--                an attempt sent over a session. A posted task never returns to the queue: a legacy
--                agent cannot say whether it ran
-- ticket_uuid    the ticket that had to be active when the task was accepted (ticketed-store.ts).
--                No foreign key: tickets are deleted earlier
-- claimed_at     when the present attempt was claimed; it never moves within the attempt
-- sent_at        when the attempt was last sent
-- cancel_sent_at when a cancel was last sent to the task's present session
-- queued_tick    when the task last joined its queue, by the counter of deadlines
-- worked_tick    when its attempt was claimed, accepted or started, by the same counter
-- last_seq       numbers the task's events under the row's lock
-- actor, summary, exit_code
--                narrow columns for lists over many servers, beside columns that may be megabytes:
--                who asked, the beginning of the request, the exit code of a command
create table cnapi_tasks (
  id uuid not null,
  server_uuid uuid not null,
  name text not null,
  params json not null,
  params_bytes int not null default 0,
  timeout_ms int not null,
  idempotent boolean not null,
  idempotency_key text,
  request_hash text not null,
  req_id text,
  state text not null default 'queued' check (state in ('queued', 'claimed', 'ended')),
  outcome text check (outcome in ('complete', 'failure')),
  attempt int not null default 0,
  epoch bigint,
  journal_id uuid,
  uncertain boolean not null default false,
  created_at timestamptz not null,
  queued_at timestamptz not null,
  claimed_at timestamptz,
  sent_at timestamptz,
  accepted_at timestamptz,
  started_at timestamptz,
  progress_at timestamptz,
  cancel_requested_at timestamptz,
  cancel_sent_at timestamptz,
  ended_at timestamptz,
  progress json,
  result json,
  error json,
  last_seq int not null default 0,
  progress_seq int,
  kept_events int not null default 0,
  kept_bytes bigint not null default 0,
  ticket_uuid uuid,
  posted_by uuid,
  masked_params json,
  queued_tick bigint default cnapi_tick(),
  worked_tick bigint,
  actor text,
  summary text,
  exit_code int,
  check ((state = 'ended') = (outcome is not null)),
  check (
    state <> 'claimed' or (epoch is not null and journal_id is not null and claimed_at is not null)
  )
) with (fillfactor = 70);

create unique index cnapi_tasks_idempotency on cnapi_tasks (server_uuid, idempotency_key)
  where idempotency_key is not null;
create index cnapi_tasks_queued on cnapi_tasks (server_uuid, queued_at) where state = 'queued';
create index cnapi_tasks_claimed on cnapi_tasks (server_uuid) where state = 'claimed';
create index cnapi_tasks_ended on cnapi_tasks (ended_at) where state = 'ended';
create index cnapi_tasks_server on cnapi_tasks (server_uuid, created_at desc);
create index cnapi_tasks_created on cnapi_tasks (created_at, id);

-- Each lookup of unfinished tasks has one index that it can use. Right after `vacuum` found no
-- unfinished task, Postgres assumes one row in each partial index until the next `analyze`. It then
-- reads a whole partial index for each server instead of using the right one: a burst of 3,000
-- tasks cost 3,000 times 3,000 rows, and no claim ended in time. The planner uses a partial index
-- only if it can prove the index's condition. It proves nothing about `state || ''`. So an index
-- with such a condition serves only statements that are written in the same way, and a statement
-- with such a condition on an id uses the primary key.
create index cnapi_tasks_unfinished on cnapi_tasks (created_at, id) where (state || '') <> 'ended';
create index cnapi_tasks_posted on cnapi_tasks (posted_by)
  where (state || '') = 'claimed' and posted_by is not null;

-- The primary key is the newest index. A connection may plan a lookup by id while the table is
-- empty, and keep the plan: all indexes cost the same then, and the newest one wins. Otherwise
-- Postgres 18 chose cnapi_tasks_created, and searched it once for each time at which a task was
-- created: a round of a push job of 10,000 servers, created in twenty steps, cost 190 ms instead of
-- 65.
alter table cnapi_tasks add primary key (id);
