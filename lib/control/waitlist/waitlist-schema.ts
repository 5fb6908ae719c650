/**
 * The tables of the waitlist, and the rules that the database itself enforces for every writer: one
 * active ticket per queue, and an ended ticket does not change. The operations are in
 * `waitlist-functions.ts`.
 */
import type { Migration } from '../../platform/postgres/migrations.ts';
import { boundedTicketKeys, ticketKeys } from './ticket-keys.ts';
import {
  addFunction,
  advanceFunction,
  createFunction,
  deleteFunction,
  deleteQueuesFunction,
  expireFunction,
  lockFunction,
  releaseFunction,
  renewFunction,
  repairFunction,
  skippingExpireFunction,
} from './waitlist-functions.ts';
import {
  firstAdvanceFunction,
  firstExpireFunction,
  firstRepairFunction,
  waitingExpireFunction,
  waitingRepairFunction,
} from './waitlist-history.ts';

/**
 * A queue has a row while one of its tickets is active or queued. `key` is never reused, so the
 * ended tickets of an earlier row never belong to a later one. `last_place` numbers the tickets
 * under the row's lock, because a sequence is not in commit order and clocks are not order.
 * `updated_at` is the time when a ticket last joined; only people use it.
 */
const queues = `
create table cnapi_waitlist_queues (
  key bigint generated always as identity primary key,
  server_uuid text collate "C" not null,
  scope text collate "C" not null,
  id text collate "C" not null,
  last_place bigint not null,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  unique (server_uuid, scope, id)
) with (fillfactor = 70);
`;

/**
 * `expires_text` is the expiry as the caller wrote it, null if it was a duration. `extra` has type
 * `json`, so it is returned exactly as it came. The unique index on active tickets is the alarm
 * behind the queue's lock; it also finds the holder.
 */
const tickets = `
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
  expires_at timestamptz not null,
  expires_text text,
  status text collate "C" not null check (status in ('queued', 'active', 'finished', 'expired')),
  created_at timestamptz not null,
  updated_at timestamptz not null,
  active_at timestamptz
) with (fillfactor = 70);
create unique index cnapi_waitlist_active on cnapi_waitlist_tickets (queue) where status = 'active';
create unique index cnapi_waitlist_queued on cnapi_waitlist_tickets (queue, place) where status = 'queued';
create index cnapi_waitlist_due on cnapi_waitlist_tickets (expires_at) where status in ('queued', 'active');
create index cnapi_waitlist_ended on cnapi_waitlist_tickets (updated_at) where status in ('finished', 'expired');
create index cnapi_waitlist_server on cnapi_waitlist_tickets (server_uuid, created_at);
`;

/** The trigger has the condition, so that an allowed update costs no function call. */
const guard = `
create function cnapi_waitlist_refuse() returns trigger language plpgsql as $$
begin
  raise exception 'ticket % is % at place % of queue %: it cannot become % at place % of queue %',
    old.uuid, old.status, old.place, old.queue, new.status, new.place, new.queue;
end $$;
create trigger cnapi_waitlist_guard before update on cnapi_waitlist_tickets for each row
  when (old.status in ('finished', 'expired') or (old.status = 'active' and new.status = 'queued')
    or new.queue <> old.queue or new.place <> old.place)
  execute function cnapi_waitlist_refuse();
`;

const operations = [
  firstAdvanceFunction,
  lockFunction,
  createFunction,
  releaseFunction,
  renewFunction,
  deleteFunction,
  deleteQueuesFunction,
  firstExpireFunction,
  firstRepairFunction,
];

/**
 * The planner cannot prove this condition in a lookup for one queue, so it never reads all due tickets there
 * (`oneIndexForEachLookup` in lib/control/tasks/task-schema.ts has the reason).
 */
const dueIndex = `
drop index cnapi_waitlist_due;
create index cnapi_waitlist_due on cnapi_waitlist_tickets (expires_at) where (status || '') in ('queued', 'active');
`;

export const waitlistMigrations: Migration[] = [
  { number: 40, name: 'waitlist queues', sql: queues },
  { number: 41, name: 'waitlist tickets', sql: tickets },
  { number: 42, name: 'an ended ticket does not change', sql: guard },
  { number: 43, name: 'waitlist operations', sql: operations.join('') },
  { number: 44, name: 'many tickets of a queue expire at once', sql: advanceFunction + waitingExpireFunction },
  { number: 45, name: 'queues to be mended are looked up one by one', sql: waitingRepairFunction },
  // Forces the use of the index even if the tables were small when this connection planned the
  // query: it keeps its plan until the next `analyze`.
  {
    number: 46,
    name: 'queues to be mended are looked up by index',
    sql: 'alter function cnapi_mend_queues(int) set enable_seqscan = off',
  },
  {
    number: 121,
    name: 'queues in use are skipped',
    sql: `${skippingExpireFunction}${repairFunction}alter function cnapi_mend_queues(int) set enable_seqscan = off`,
  },
  { number: 163, name: 'tickets of a server are bounded', sql: addFunction },
  { number: 173, name: 'idempotency keys of tickets', sql: ticketKeys },
  { number: 176, name: 'tickets with a key are bounded as well', sql: boundedTicketKeys },
  { number: 191, name: 'one index for each lookup of tickets', sql: dueIndex + expireFunction },
  // Without sequential scans a query costs so much by the planner's estimate that Postgres before 18
  // compiles it each time: it took 200 ms instead of 1.
  {
    number: 202,
    name: 'the repair of queues is not compiled',
    sql: 'alter function cnapi_mend_queues(int) set jit = off',
  },
];
