/**
 * SQL of a task that names a ticket: it is created only while that ticket is active. The same
 * statement locks the ticket's row `for share` and inserts the task (law 5). So a release, an
 * expiry or a deletion either commits before it and is seen, or comes after it. Of the waitlist it
 * knows only the table `cnapi_waitlist_tickets` (uuid, server_uuid, status).
 */
import type { Queryable } from '../../../platform/postgres/database.ts';
import { SqlParameters, statementName } from '../../../platform/postgres/sql-text.ts';
import { type CreatedTask, type NewTask, taskInsertion, taskInsertionValues, taskRecord } from './task-store.ts';

/** A ticket as the creating statement found it. */
export interface TicketCheck {
  status: string;
  /** The server of its queue, or `default`. */
  serverUuid: string;
}

export type TicketedCreation =
  | ({ kind: 'made' } & CreatedTask)
  /** Not active, of another server's queue, or not found. */
  | { kind: 'refused'; ticket: TicketCheck | undefined }
  /** The server's queue of tasks is full, and the idempotency key, if any, is new. */
  | { kind: 'full' };

interface CreationRow extends TicketCheck, CreatedTask {
  holds: boolean;
}

/**
 * Creates a task under the ticket that it names, which must be active and of its server or of
 * `default`.
 */
export async function createTaskUnderTicket(database: Queryable, task: NewTask): Promise<TicketedCreation> {
  const parameters = new SqlParameters(taskInsertionValues(task));
  const { rows } = await database.query<CreationRow>(
    `with ${taskRecord(task, parameters)}ticket as (
       select status, server_uuid, status = 'active' and server_uuid in ($2::text, 'default') as holds
         from cnapi_waitlist_tickets where uuid = $11::uuid
         for share
     ), ${taskInsertion('queue, (select from ticket where holds) as held')}
     select ticket.holds, ticket.status, ticket.server_uuid as "serverUuid",
         made.id, made.request_hash as "requestHash", r.run
       from ticket left join made on true left join cnapi_roster_authority r on r.server_uuid = $2::uuid`,
    parameters.values,
    { name: statementName('create task under ticket', task.record) },
  );
  const row = rows[0];
  if (row === undefined || !row.holds) return { kind: 'refused', ticket: row };
  return row.id === null ? { kind: 'full' } : { kind: 'made', ...row };
}
