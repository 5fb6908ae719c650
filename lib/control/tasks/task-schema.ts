/**
 * Tables of the tasks subsystem and the rules that the database itself enforces: an ended task does
 * not change, attempts are numbered without gaps, and every end creates its event, whichever
 * statement wrote it. The functions over several rows are in files of their own, named after what
 * they do.
 *
 * params, result, error and progress are `json`, not `jsonb`: they are passed on unchanged, NUL
 * characters included.
 */
import type { Migration } from '../../platform/postgres/migrations.ts';
import { claimFunctions, firstClaimFunctions } from './claim-function.ts';
import { claimPassedOverFunction } from './claim-history.ts';
import { lateFunctions, tickFunctions } from './deadline-functions.ts';
import { posts } from './post-functions.ts';
import { storeReportsFunction } from './record-function.ts';
import { firstStoreReportsFunction } from './record-history.ts';
import { repeatFunction } from './repeat-function.ts';
import { inventoryFunction, settleInventoriesFunction } from './settle-functions.ts';
import { claimFunction, claimLaterFunction, recordFunction, sweepFunction } from './task-functions.ts';

/**
 * `claimed_at` is when the present attempt was claimed. It never moves within the attempt:
 * deadlines count from it. `sent_at` is when it was last sent, `cancel_sent_at` when a cancel was
 * last sent to its present session. `uncertain`: an earlier attempt may have run. `last_seq`
 * numbers the task's events under the row's lock.
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

/**
 * For a piece of output, `first_byte` and `bytes` give its place in its stream, and `cut` the
 * number of bytes dropped there.
 */
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

/**
 * The ticket that had to be active when the task was accepted (`ticketed-store.ts`). No foreign
 * key: tickets are deleted earlier.
 */
const ticket = `alter table cnapi_tasks add column if not exists ticket_uuid uuid`;

/**
 * Narrow columns for lists over many servers, beside columns that may be megabytes: who asked, the
 * beginning of the request, and the exit code of a command. The exit code is searched at the
 * beginning of the result, where agents put it, and as text: a result is `json` and may hold
 * characters that no json function accepts. Quotation marks within a text of the result are
 * escaped, so no output can look like an exit code.
 */
const lists = `
alter table cnapi_tasks add column actor text, add column summary text, add column exit_code int;
create index cnapi_tasks_created on cnapi_tasks (created_at, id);
create index cnapi_tasks_active on cnapi_tasks (created_at, id) where state <> 'ended';
create function cnapi_tasks_exit_code() returns trigger language plpgsql as $$
begin
  new.exit_code := substring(left(new.result::text, 1000) from '"exitCode":(-?[0-9]{1,9})[,}]')::int;
  return new;
end $$;
create trigger cnapi_tasks_exit_code before update on cnapi_tasks for each row
  when (new.state = 'ended' and old.state <> 'ended' and new.result is not null) execute function cnapi_tasks_exit_code();
`;

/**
 * If params hold secrets, `params` keeps them for the agent until the end, and `masked_params` is
 * what everybody else is shown. An earlier version that does not know of this writes ends too, so
 * the database itself deletes the secrets.
 */
const secrets = `
alter table cnapi_tasks add column if not exists masked_params json;
create or replace function cnapi_tasks_forget_secrets() returns trigger language plpgsql as $$
begin
  new.params := new.masked_params;
  return new;
end $$;
create trigger cnapi_tasks_forget_secrets before update on cnapi_tasks for each row
  when (new.state = 'ended' and new.masked_params is not null) execute function cnapi_tasks_forget_secrets();
`;

/**
 * Gives each lookup of unfinished tasks one index that it can use. Right after `vacuum` found no
 * unfinished task, Postgres assumes one row in each partial index until the next `analyze`. It then
 * reads a whole partial index for each server instead of using the right one: a burst of 3,000
 * tasks cost 3,000 times 3,000 rows, and no claim ended in time. The planner uses a partial index
 * only if it can prove the index's condition. It proves nothing about `state || ''`. So an index
 * with such a condition serves only statements that are written in the same way, and a statement
 * with such a condition on an id uses the primary key.
 */
const oneIndexForEachLookup = `
drop index cnapi_tasks_active;
create index cnapi_tasks_unfinished on cnapi_tasks (created_at, id) where (state || '') <> 'ended';
drop index cnapi_tasks_posted;
create index cnapi_tasks_posted on cnapi_tasks (posted_by) where (state || '') = 'claimed' and posted_by is not null;
`;

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
  { number: 68, name: 'claims return ids only', sql: firstClaimFunctions },
  { number: 120, name: 'task reports in one pass', sql: firstStoreReportsFunction },
  { number: 125, name: 'tasks at inventory, without waiting for locked rows', sql: settleInventoriesFunction },
  { number: 160, name: 'secret params', sql: secrets },
  { number: 174, name: 'ticks of tasks', sql: tickFunctions },
  { number: 175, name: 'tasks past their deadline, in ticks', sql: lateFunctions },
  { number: 180, name: 'lists of all tasks', sql: lists },
  { number: 190, name: 'one index for each lookup of tasks', sql: oneIndexForEachLookup + claimFunctions },
  { number: 200, name: 'task reports at a linear cost', sql: storeReportsFunction },
];
