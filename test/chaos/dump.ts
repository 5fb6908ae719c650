/** Reads from the database, after a run, what the checker compares with the history. */

import { PUSH_TASK } from '../../lib/protocol/push.ts';
import type { Zone } from '../support/fleet-harness.ts';
import { OF_A_FAULT } from './answer-faults.ts';
import type { Stored, StoredPushJob, StoredStatus, StoredTask, StoredTicket } from './history.ts';

/** A time in milliseconds, with fractions. */
const ms = (column: string) => `(extract(epoch from ${column}) * 1000)::float8`;

export async function dump(zone: Zone): Promise<Stored> {
  const tasks = await zone.sql<StoredTask>(
    `select t.id, t.server_uuid as server, t.idempotency_key as key, t.state, t.outcome, t.attempt,
       ${ms('t.created_at')} as "createdAt", ${ms('t.ended_at')} as "endedAt",
       ${ms('t.cancel_requested_at')} as "cancelRequestedAt", t.error->>'code' as "errorCode",
       (t.result->>'exitCode')::int as "exitCode", t.result->>'stdout' as stdout,
       count(e.*) filter (where e.name = 'end')::int as ends, count(e.*) filter (where e.name = 'retry')::int as retries
     from cnapi_tasks t left join cnapi_task_events e on e.task_id = t.id and e.name in ('end', 'retry')
     where (t.idempotency_key is null or not starts_with(t.idempotency_key, '${OF_A_FAULT}')) and t.name <> '${PUSH_TASK}'
     group by t.id order by t.created_at`,
  );
  const tickets = await zone.sql<StoredTicket>(
    `select uuid, server_uuid || '/' || scope || '/' || id as queue, queue::int as row, place::int, status,
       ${ms('created_at')} as "createdAt", ${ms('active_at')} as "activeAt", ${ms('updated_at')} as "updatedAt"
     from cnapi_waitlist_tickets order by queue, place`,
  );
  const statuses = await zone.sql<StoredStatus>(
    `select server_uuid as server, status, reason, ${ms('since')} as since, epoch::float8 as epoch
     from cnapi_status_history order by id`,
  );
  const pushJobs = await zone.sql<StoredPushJob>(
    `select j.id, j.state, j.outcome, ${ms('j.created_at')} as "createdAt",
       case j.state when 'ended' then ${ms('j.state_since')} end as "endedAt",
       (select json_agg(json_build_object('server', n.server_uuid, 'state', n.state,
           'tasks', (select count(*) from cnapi_tasks t
             where t.server_uuid = n.server_uuid and t.name = '${PUSH_TASK}' and t.params->>'job' = j.id::text),
           'ends', (select count(*) from cnapi_task_events e where e.task_id = n.task and e.name = 'end'),
           'isBusy', exists (select 1 from cnapi_push_busy b where b.server_uuid = n.server_uuid and b.job = j.id)))
         from cnapi_push_nodes n where n.job = j.id) as nodes
     from cnapi_push_jobs j order by j.created_at`,
  );
  return { tasks, tickets, statuses, pushJobs };
}

/** The number of tasks, tickets, push jobs and servers in rehab that have not ended yet. */
export async function unended(zone: Zone): Promise<number> {
  const [row] = await zone.sql<{ count: number }>(
    `select ((select count(*) from cnapi_tasks where state <> 'ended')
      + (select count(*) from cnapi_push_jobs where state <> 'ended') + (select count(*) from cnapi_push_busy)
      + (select count(*) from cnapi_waitlist_tickets where status in ('queued', 'active')))::int as count`,
  );
  return row?.count ?? 0;
}
