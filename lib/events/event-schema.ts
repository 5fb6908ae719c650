/**
 * The log of events, kept by the database itself: triggers tell each change in the transaction that makes it, whoever does,
 * an instance of an earlier version too; so none is told that did not happen, and none that happened is forgotten when an
 * instance dies. Told changes wait in `cnapi_event_outbox`; `cnapi_number_events` moves them to `cnapi_events`.
 *
 * Two steps because readers ask for what is above the last id they had, and an id taken while a transaction runs is not in
 * commit order: the outbox is read without regard to order, what is committed later is found later, and numbers are given
 * under the lock of one row (law 5). Of one object the outbox is in order: its row is locked when the id is taken.
 */
import type { Migration } from '../moray/migrations.ts';
import { firstBound, firstInstance, firstLog, firstStatus, firstTask, firstTicket } from './event-history.ts';

/** What waits in the outbox at most, as long as nobody numbers it: all that run are of a version before events. */
export const OUTBOX_BOUND = 100_000;

/**
 * `numbered_at`: when an instance last looked, within a minute. `moved_id`: the last one that left the outbox; a change is
 * told while the outbox's ids are not too far from it, else a row in `cnapi_event_misses` says that some were not. The gap that
 * tells readers so comes after all that had waited: what is missing is younger, and who reads everything anew at the gap must
 * not be told older changes afterwards. Ids in `cnapi_events` have no holes.
 */
const numbering = `
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

/**
 * A trigger's function that tells one kind. It takes no lock that anybody waits for, and fails only where the database does.
 * `at` is the time that the change itself has, where it has one, so that no further clock is read.
 */
function tell(kind: string, { server, at, body }: { server: string; at: string; body: string }): string {
  return `
create or replace function cnapi_tell_${kind}() returns trigger language plpgsql as $$
begin
  insert into cnapi_event_outbox (kind, server_uuid, stored_at, body)
    select '${kind.replace('_deleted', '')}', ${server}, ${at}, ${body}
      from cnapi_event_log l, cnapi_event_outbox_id_seq s where s.last_value < l.moved_id + ${OUTBOX_BOUND};
  if not found then
    insert into cnapi_event_misses (since) select cnapi_now() where not exists (select 1 from cnapi_event_misses);
  end if;
  return null;
end $$;
`;
}

/** The roster's own trigger writes a row of history for each change. */
const status = tell('status', {
  server: 'new.server_uuid::text',
  at: 'new.since',
  body: `jsonb_build_object('server_uuid', new.server_uuid, 'status', new.status, 'previous', new.previous,
        'reason', new.reason, 'cnapi_uuid', new.cnapi_uuid, 'epoch', new.epoch)`,
});

const task = tell('task', {
  server: 'new.server_uuid::text',
  at: `(case new.state when 'queued' then new.queued_at when 'claimed' then new.claimed_at else new.ended_at end)`,
  body: `jsonb_build_object('id', new.id, 'server_uuid', new.server_uuid, 'task', new.name,
        'status', case new.state when 'claimed' then 'active' when 'ended' then new.outcome else 'queued' end,
        'attempt', new.attempt)`,
});

/** One that had ended and is deleted, or forgotten by housekeeping, changes for nobody. */
const ticket =
  tell('ticket', {
    server: 'new.server_uuid',
    at: 'new.updated_at',
    body: `jsonb_build_object('uuid', new.uuid, 'server_uuid', new.server_uuid, 'scope', new.scope, 'id', new.id,
        'status', new.status)`,
  }) +
  tell('ticket_deleted', {
    server: 'old.server_uuid',
    at: 'cnapi_now()',
    body: `jsonb_build_object('uuid', old.uuid, 'server_uuid', old.server_uuid, 'scope', old.scope, 'id', old.id,
        'status', 'deleted')`,
  });

/** A run that was renewed is live from now on, though its instance started long ago. */
const instance = tell('instance', {
  server: 'null',
  at: `coalesce(new.ended_at, new.draining_since, cnapi_now())`,
  body: `jsonb_build_object('uuid', new.cnapi_uuid, 'run', new.run, 'url', new.url, 'version', new.version,
        'state', case when new.state = 'dead' then new.end_reason when new.draining_since is not null then 'draining'
          else 'live' end)`,
});

export const eventMigrations: Migration[] = [
  { number: 80, name: 'log of events', sql: firstLog },
  { number: 81, name: 'changes are told as events', sql: firstStatus + firstTask + firstTicket + firstInstance },
  {
    number: 82,
    name: 'the outbox of events is bounded by length',
    sql: firstBound + status + task + ticket + instance,
  },
  { number: 83, name: 'a gap is told after what had waited', sql: numbering },
];
