/**
 * Checks the log of events at the end of a run (I6): each change of a status and each step of a
 * task was sent once and in order, numbered without gaps, whatever had died meanwhile. Events that
 * wait in the outbox count.
 */
import type { SimPostgres } from './sim-postgres.ts';

const SENT = `
  with sent as (
    select id, 0 as stage, kind, server_uuid, body from cnapi_events
    union all
    select o.id, 1, o.kind, o.server_uuid, o.body from cnapi_event_outbox o, lateral (
      select * from cnapi_event_numberings order by id desc limit 1
    ) n
    where o.id > n.read_id or exists (
      select 1 from unnest(n.hole_from, n.hole_to) as h (first, last) where o.id between h.first and h.last
    )
  )`;

/** Each returns a sentence per violation. */
const QUESTIONS = [
  `${SENT}, statuses as (
     select server_uuid, body->>'status' as status, body->>'previous' as previous, body->>'reason' as reason,
       row_number() over mine as place, lag(body->>'status') over mine as before
     from sent where kind = 'status' window mine as (partition by server_uuid order by stage, id)
   ), changes as (
     select server_uuid::text, status, reason, row_number() over (partition by server_uuid order by id) as place
     from cnapi_status_history
   )
   select format('status change %s of %s is %s %s, but its event says %s %s', place, server_uuid, c.status, c.reason, s.status, s.reason)
     as complaint
   from statuses s full join changes c using (server_uuid, place)
   where s.status is distinct from c.status or s.reason is distinct from c.reason
   union all
   select format('an event says that %s became %s after %s, but it was %s', server_uuid, status, previous, before)
   from statuses where previous is distinct from before`,
  `${SENT}
   select format('task %s is %s %s at attempt %s, but its events are: %s', t.id, t.state, t.outcome, t.attempt, string_agg(e.body->>'status', ', '))
     as complaint
   from cnapi_tasks t left join sent e on e.kind = 'task' and e.body->>'id' = t.id::text
   group by t.id
   having count(*) filter (where e.body->>'status' = 'queued') < 1
     or count(*) filter (where e.body->>'status' = 'active') <> t.attempt
     or count(*) filter (where e.body->>'status' = t.outcome) <> (t.state = 'ended')::int
     or (array_agg(e.body->>'status' order by e.stage, e.id))[1] <> 'queued'
     or (t.state = 'ended' and (array_agg(e.body->>'status' order by e.stage desc, e.id desc))[1] <> t.outcome)`,
  `${SENT}
   select format('instance %s is %s, but its events are: %s', i.run, i.state, string_agg(e.body->>'state', ', ')) as complaint
   from cnapi_instances i left join sent e on e.kind = 'instance' and e.body->>'run' = i.run::text
   group by i.run
   having count(*) filter (where e.body->>'state' = 'live') <> 1
     or count(*) filter (where e.body->>'state' = i.end_reason) <> (i.state = 'dead')::int`,
  `select 'an event reports a gap: ' || body::text as complaint from cnapi_events where kind = 'gap'
   union all select 'changes have no event' from cnapi_event_misses`,
  `select format('%s events, but the last number is %s', count(*), l.last_id) as complaint
   from (select last_id from cnapi_event_numberings order by id desc limit 1) l left join cnapi_events e on true group by l.last_id
   having count(e.id) <> l.last_id or coalesce(max(e.id), 0) <> l.last_id`,
];

export async function eventComplaints(postgres: SimPostgres): Promise<string[]> {
  const complaints: string[] = [];
  for (const question of QUESTIONS)
    complaints.push(...(await postgres.read<{ complaint: string }>(question)).rows.map(({ complaint }) => complaint));
  return complaints;
}
