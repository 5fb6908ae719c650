/**
 * The first versions of the log of events. An applied migration never changes, so its text stays
 * here; `event-schema.ts` has the functions that replaced these. The outbox was bounded by time, so
 * after an outage of the database the first changes were not recorded. A renewed run was recorded
 * with the time of its first start.
 */

/**
 * `numbered_at`: when an instance last moved waiting changes to the log. If none has done so for
 * minutes (all instances are of a version before events), nothing is added to the outbox, and a row
 * in `cnapi_event_misses` records that. Ids in `cnapi_events` have no holes.
 */
export const firstLog = `
create table cnapi_events (
  id bigint primary key,
  kind text collate "C" not null,
  server_uuid text collate "C",
  stored_at timestamptz not null,
  body jsonb not null
);
create table cnapi_event_outbox (
  id bigint generated always as identity primary key,
  kind text collate "C" not null,
  server_uuid text collate "C",
  stored_at timestamptz not null,
  body jsonb not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
create table cnapi_event_misses (since timestamptz not null);
create table cnapi_event_log (
  is_only boolean primary key default true check (is_only),
  last_id bigint not null,
  numbered_at timestamptz not null
) with (fillfactor = 50);
insert into cnapi_event_log (last_id, numbered_at) values (0, cnapi_now());

create function cnapi_number_events(p_most int) returns table (numbered int, last_id bigint, waited_ms bigint)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  log cnapi_event_log;
  moment timestamptz := cnapi_now();
  moved int;
  waited interval;
begin
  select * into log from cnapi_event_log;
  if log.numbered_at > moment - interval '1 minute' and not exists (select 1 from cnapi_event_outbox)
    and not exists (select 1 from cnapi_event_misses) then
    return query select 0, log.last_id, 0::bigint;
    return;
  end if;
  select * into log from cnapi_event_log for update skip locked;
  if not found then
    return query select 0, l.last_id, 0::bigint from cnapi_event_log l;
    return;
  end if;
  moment := cnapi_now();
  delete from cnapi_event_misses;
  if found then
    log.last_id := log.last_id + 1;
    insert into cnapi_events (id, kind, stored_at, body) values (log.last_id, 'gap', moment, jsonb_build_object('message',
      format('No instance kept the log of events since %s: changes between then and now may be missing',
        to_char(log.numbered_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))));
  end if;
  with taken as (
    delete from cnapi_event_outbox o
      where o.id = any (array(select w.id from cnapi_event_outbox w order by w.id limit p_most))
      returning o.*
  ), added as (
    insert into cnapi_events (id, kind, server_uuid, stored_at, body)
      select log.last_id + row_number() over (order by t.id), t.kind, t.server_uuid, t.stored_at, t.body from taken t
      returning stored_at
  )
  select count(*), moment - min(a.stored_at) into moved, waited from added a;
  update cnapi_event_log l set last_id = log.last_id + moved, numbered_at = moment;
  return query select moved, log.last_id + moved, coalesce(extract(epoch from waited) * 1000, 0)::bigint;
end $$;
`;

/**
 * A trigger that records changes of one kind. It takes no lock that other transactions wait for,
 * and fails only if the database does. `at` is the time of the change itself, so no further clock
 * is read.
 */
function createTrigger(kind: string, { server, at, body }: { server: string; at: string; body: string }): string {
  return `
create function cnapi_tell_${kind}() returns trigger language plpgsql as $$
begin
  insert into cnapi_event_outbox (kind, server_uuid, stored_at, body)
    select '${kind}', ${server}, ${at}, ${body}
      from cnapi_event_log l where l.numbered_at > ${at} - interval '5 minutes';
  if not found then
    insert into cnapi_event_misses (since) select ${at} where not exists (select 1 from cnapi_event_misses);
  end if;
  return null;
end $$;
`;
}

/** The roster's own trigger writes a row of history for each change. */
export const firstStatus = `${createTrigger('status', {
  server: 'new.server_uuid::text',
  at: 'new.since',
  body: `jsonb_build_object('server_uuid', new.server_uuid, 'status', new.status, 'previous', new.previous,
        'reason', new.reason, 'cnapi_uuid', new.cnapi_uuid, 'epoch', new.epoch)`,
})}
create trigger cnapi_tell after insert on cnapi_status_history for each row execute function cnapi_tell_status();
`;

export const firstTask = `${createTrigger('task', {
  server: 'new.server_uuid::text',
  at: `(case new.state when 'queued' then new.queued_at when 'claimed' then new.claimed_at else new.ended_at end)`,
  body: `jsonb_build_object('id', new.id, 'server_uuid', new.server_uuid, 'task', new.name,
        'status', case new.state when 'claimed' then 'active' when 'ended' then new.outcome else 'queued' end,
        'attempt', new.attempt)`,
})}
create trigger cnapi_tell_made after insert on cnapi_tasks for each row execute function cnapi_tell_task();
create trigger cnapi_tell_moved after update on cnapi_tasks for each row when (old.state <> new.state)
  execute function cnapi_tell_task();
`;

/** The deletion of a ticket that had already ended, also by housekeeping, is not a change. */
export const firstTicket = `${createTrigger('ticket', {
  server: 'new.server_uuid',
  at: 'new.updated_at',
  body: `jsonb_build_object('uuid', new.uuid, 'server_uuid', new.server_uuid, 'scope', new.scope, 'id', new.id,
        'status', new.status)`,
})}
${createTrigger('ticket_deleted', {
  server: 'old.server_uuid',
  at: 'cnapi_now()',
  body: `jsonb_build_object('uuid', old.uuid, 'server_uuid', old.server_uuid, 'scope', old.scope, 'id', old.id,
        'status', 'deleted')`,
}).replace("select 'ticket_deleted'", "select 'ticket'")}
create trigger cnapi_tell_made after insert on cnapi_waitlist_tickets for each row execute function cnapi_tell_ticket();
create trigger cnapi_tell_moved after update on cnapi_waitlist_tickets for each row when (old.status <> new.status)
  execute function cnapi_tell_ticket();
create trigger cnapi_tell_deleted after delete on cnapi_waitlist_tickets for each row
  when (old.status in ('queued', 'active')) execute function cnapi_tell_ticket_deleted();
`;

export const firstInstance = `${createTrigger('instance', {
  server: 'null',
  at: 'coalesce(new.ended_at, new.draining_since, new.started_at)',
  body: `jsonb_build_object('uuid', new.cnapi_uuid, 'run', new.run, 'url', new.url, 'version', new.version,
        'state', case when new.state = 'dead' then new.end_reason when new.draining_since is not null then 'draining'
          else 'live' end)`,
})}
create trigger cnapi_tell_made after insert on cnapi_instances for each row execute function cnapi_tell_instance();
create trigger cnapi_tell_moved after update on cnapi_instances for each row
  when (old.state <> new.state or (old.draining_since is null) <> (new.draining_since is null))
  execute function cnapi_tell_instance();
`;

/**
 * Migration 82. Its gap came before the changes that had waited, although those are older than the
 * missing ones.
 */
export const firstBound = `
alter table cnapi_event_log add column if not exists moved_id bigint not null default 0;
update cnapi_event_log set moved_id = (select last_value from cnapi_event_outbox_id_seq);

create or replace function cnapi_number_events(p_most int) returns table (numbered int, last_id bigint, waited_ms bigint)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  log cnapi_event_log;
  moment timestamptz := cnapi_now();
  reached bigint;
  moved int;
  waited interval;
begin
  select * into log from cnapi_event_log;
  if log.numbered_at > moment - interval '1 minute' and not exists (select 1 from cnapi_event_outbox)
    and not exists (select 1 from cnapi_event_misses) then
    return query select 0, log.last_id, 0::bigint;
    return;
  end if;
  select * into log from cnapi_event_log for update skip locked;
  if not found then
    return query select 0, l.last_id, 0::bigint from cnapi_event_log l;
    return;
  end if;
  moment := cnapi_now();
  select s.last_value into reached from cnapi_event_outbox_id_seq s;
  delete from cnapi_event_misses;
  if found then
    log.last_id := log.last_id + 1;
    insert into cnapi_events (id, kind, stored_at, body) values (log.last_id, 'gap', moment, jsonb_build_object('message',
      format('No instance kept the log of events since %s: changes between then and now may be missing',
        to_char(log.numbered_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))));
  end if;
  with taken as (
    delete from cnapi_event_outbox o
      where o.id = any (array(select w.id from cnapi_event_outbox w order by w.id limit p_most))
      returning o.*
  ), added as (
    insert into cnapi_events (id, kind, server_uuid, stored_at, body)
      select log.last_id + row_number() over (order by t.id), t.kind, t.server_uuid, t.stored_at, t.body from taken t
      returning stored_at
  )
  select count(*), moment - (select min(a.stored_at) from added a), max(t.id) into moved, waited, log.moved_id from taken t;
  if moved < p_most then
    log.moved_id := reached;
  end if;
  update cnapi_event_log l set last_id = log.last_id + moved, numbered_at = moment, moved_id = log.moved_id;
  return query select moved, log.last_id + moved, coalesce(extract(epoch from waited) * 1000, 0)::bigint;
end $$;
`;

/**
 * Migration 83. Each numbering read through the rows that earlier ones had deleted, as long as a
 * snapshot kept them.
 */
export const firstNumbering = `
create or replace function cnapi_number_events(p_most int) returns table (numbered int, last_id bigint, waited_ms bigint)
language plpgsql volatile as $$
#variable_conflict use_column
declare
  log cnapi_event_log;
  moment timestamptz := cnapi_now();
  reached bigint;
  moved int;
  waited interval;
  missed_since timestamptz;
begin
  select * into log from cnapi_event_log;
  if log.numbered_at > moment - interval '1 minute' and not exists (select 1 from cnapi_event_outbox)
    and not exists (select 1 from cnapi_event_misses) then
    return query select 0, log.last_id, 0::bigint;
    return;
  end if;
  select * into log from cnapi_event_log for update skip locked;
  if not found then
    return query select 0, l.last_id, 0::bigint from cnapi_event_log l;
    return;
  end if;
  moment := cnapi_now();
  select s.last_value into reached from cnapi_event_outbox_id_seq s;
  with taken as (
    delete from cnapi_event_outbox o
      where o.id = any (array(select w.id from cnapi_event_outbox w order by w.id limit p_most))
      returning o.*
  ), added as (
    insert into cnapi_events (id, kind, server_uuid, stored_at, body)
      select log.last_id + row_number() over (order by t.id), t.kind, t.server_uuid, t.stored_at, t.body from taken t
      returning stored_at
  )
  select count(*), moment - (select min(a.stored_at) from added a), max(t.id) into moved, waited, log.moved_id from taken t;
  log.last_id := log.last_id + moved;
  if moved < p_most then
    log.moved_id := reached;
    with said as (delete from cnapi_event_misses returning since)
    select min(s.since) into missed_since from said s;
    if missed_since is not null then
      log.last_id := log.last_id + 1;
      insert into cnapi_events (id, kind, stored_at, body) values (log.last_id, 'gap', moment, jsonb_build_object('message',
        format('No instance kept the log of events in time: changes since %s may be missing, up to now',
          to_char(missed_since at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))));
    end if;
  end if;
  update cnapi_event_log l set last_id = log.last_id, numbered_at = moment, moved_id = log.moved_id;
  return query select moved, log.last_id, coalesce(extract(epoch from waited) * 1000, 0)::bigint;
end $$;
`;
