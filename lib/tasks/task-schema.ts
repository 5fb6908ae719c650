/**
 * Tables of the tasks subsystem and the rules that stand in the database itself: an ended task does not change, attempts
 * are numbered without gaps, and every end leaves its event, whoever wrote it. The functions that work over several rows
 * are in `task-functions.ts`.
 *
 * params, result, error and progress are `json`, not `jsonb`: they are handed on as they came, NUL characters included.
 */
import type { Migration } from '../moray/migrations.ts';
import { claimPassedOverFunction } from './claim-function.ts';
import { posts } from './post-functions.ts';
import { repeatFunction } from './repeat-function.ts';
import {
  claimFunction,
  claimLaterFunction,
  inventoryFunction,
  recordFunction,
  sweepFunction,
} from './task-functions.ts';

/**
 * `claimed_at` is when the present attempt was claimed and never moves within it: deadlines count from it. `sent_at` is
 * when it was last sent, `cancel_sent_at` when its present session was last told to end it. `uncertain`: an earlier attempt may have run. `last_seq` numbers the task's events under the
 * row's lock.
 */
const tasks = `
create table cnapi_tasks (
  id uuid primary key,
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
  check ((state = 'ended') = (outcome is not null)),
  check (state <> 'claimed' or (epoch is not null and journal_id is not null and claimed_at is not null))
) with (fillfactor = 70);
create unique index cnapi_tasks_idempotency on cnapi_tasks (server_uuid, idempotency_key)
  where idempotency_key is not null;
create index cnapi_tasks_queued on cnapi_tasks (server_uuid, queued_at) where state = 'queued';
create index cnapi_tasks_claimed on cnapi_tasks (server_uuid) where state = 'claimed';
create index cnapi_tasks_ended on cnapi_tasks (ended_at) where state = 'ended';
create index cnapi_tasks_server on cnapi_tasks (server_uuid, created_at desc);
`;

/** Of an output piece, `first_byte` and `bytes` say where in its stream it stands, `cut` how much was dropped there. */
const events = `
create table cnapi_task_events (
  task_id uuid not null references cnapi_tasks (id) on delete cascade,
  seq int not null,
  attempt int not null,
  name text not null,
  stored_at timestamptz not null,
  reported_at text,
  data json,
  stream text,
  first_byte bigint,
  bytes int not null default 0,
  cut bigint not null default 0,
  primary key (task_id, seq)
);
`;

const guard = `
create function cnapi_tasks_guard() returns trigger language plpgsql as $$
begin
  if old.state = 'ended' then
    if new.state <> 'ended' or new.outcome <> old.outcome or new.attempt <> old.attempt then
      raise exception 'task % has ended and cannot change', old.id;
    end if;
  elsif new.attempt <> old.attempt + (case when old.state = 'queued' and new.state = 'claimed' then 1 else 0 end) then
    raise exception 'task %: attempt % cannot follow attempt %', old.id, new.attempt, old.attempt;
  elsif new.state = 'ended' then
    new.ended_at := cnapi_now();
    new.last_seq := new.last_seq + 1;
    insert into cnapi_task_events (task_id, seq, attempt, name, stored_at)
      values (new.id, new.last_seq, new.attempt, 'end', new.ended_at);
  end if;
  return new;
end $$;
create trigger cnapi_tasks_guard before update on cnapi_tasks for each row execute function cnapi_tasks_guard();
`;

/** The ticket that had to be active when the task was accepted (`ticketed-store.ts`); no foreign key: tickets come and go. */
const ticket = `alter table cnapi_tasks add column if not exists ticket_uuid uuid`;

export const taskMigrations: Migration[] = [
  { number: 30, name: 'tasks', sql: tasks },
  { number: 31, name: 'task events', sql: events },
  { number: 32, name: 'one end for each task', sql: guard },
  { number: 33, name: 'claim tasks', sql: claimFunction },
  { number: 34, name: 'tasks at inventory', sql: inventoryFunction },
  { number: 35, name: 'record task reports', sql: recordFunction },
  { number: 36, name: 'sweep tasks', sql: sweepFunction },
  { number: 37, name: 'tasks under tickets', sql: ticket },
  { number: 38, name: 'posts of tasks', sql: posts },
  { number: 39, name: 'cancels that were passed over', sql: claimLaterFunction },
  { number: 60, name: 'queued tasks that were passed over', sql: claimPassedOverFunction },
  { number: 67, name: 'task reports that may be stored already', sql: repeatFunction },
];
