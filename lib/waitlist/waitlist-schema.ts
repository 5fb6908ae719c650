/**
 * Tables of the waitlist and the rules that stand in the database itself: one active ticket per queue, whoever wrote it,
 * and an ended ticket does not change. The operations are in `waitlist-functions.ts`.
 */
import type { Migration } from '../moray/migrations.ts';
import {
  advanceFunction,
  createFunction,
  deleteFunction,
  deleteQueuesFunction,
  expireFunction,
  lockFunction,
  mendFunction,
  releaseFunction,
  renewFunction,
} from './waitlist-functions.ts';
import { firstAdvanceFunction, firstExpireFunction, firstMendFunction } from './waitlist-history.ts';

/**
 * A queue's row is there while a ticket of it is active or queued; `key` is never used again, so that the ended tickets of
 * an earlier row are none of the next one's. `last_place` numbers the tickets under the row's lock: a sequence is not commit order, and
 * clocks are not order. `updated_at`, when a ticket last joined, is for people.
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
 * `expires_text` is the expiry as it was given, absent when a duration was. `extra` is `json`: handed on as it came.
 * The unique index on active tickets is the alarm behind the queue's lock, and how the holder is found.
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

/** The condition is the trigger's, so that what is allowed costs no call. */
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
  firstMendFunction,
];

export const waitlistMigrations: Migration[] = [
  { number: 40, name: 'waitlist queues', sql: queues },
  { number: 41, name: 'waitlist tickets', sql: tickets },
  { number: 42, name: 'an ended ticket does not change', sql: guard },
  { number: 43, name: 'waitlist operations', sql: operations.join('') },
  { number: 44, name: 'many tickets of a queue expire at once', sql: advanceFunction + expireFunction },
  { number: 45, name: 'queues to be mended are looked up one by one', sql: mendFunction },
  // By index even where the tables were small when this connection planned it: it keeps its plan until the next `analyze`.
  {
    number: 46,
    name: 'queues to be mended are looked up by index',
    sql: 'alter function cnapi_mend_queues(int) set enable_seqscan = off',
  },
];
