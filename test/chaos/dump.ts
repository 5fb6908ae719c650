/** Reads from the database, after a run, what the checker compares with the history. */

import type { Zone } from '../support/fleet-harness.ts';
import { OF_A_FAULT } from './answer-faults.ts';
import type { Stored, StoredStatus, StoredTask, StoredTicket } from './history.ts';

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
     where t.idempotency_key is null or not starts_with(t.idempotency_key, '${OF_A_FAULT}')
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
  return { tasks, tickets, statuses };
}

/** The number of tasks and tickets that have not ended yet. */
export async function unended(zone: Zone): Promise<number> {
  const [row] = await zone.sql<{ count: number }>(
    `select ((select count(*) from cnapi_tasks where state <> 'ended')
      + (select count(*) from cnapi_waitlist_tickets where status in ('queued', 'active')))::int as count`,
  );
  return row?.count ?? 0;
}
