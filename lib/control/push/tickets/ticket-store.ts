/** SQL of the tickets of push jobs. The writes are fenced by the job's duty. */

import type { Queryable } from '../../../platform/postgres/database.ts';
import type { HeldDuty } from '../../duty/duty.ts';
import { fenced } from '../../duty/duty-fence.ts';

/** What a job asks of the waitlist. */
export interface WantedTicket {
  /** The server of the queue, or `default`. */
  serverUuid: string;
  scope: string;
  id: string;
  /** The lifetime of a ticket. The ticket is renewed long before that. */
  expiresInSeconds: number;
  /** How long the job waits for it. */
  timeoutMs: number;
}

export interface PushTicketRow extends WantedTicket {
  actor: string | undefined;
  /** Undefined: it may not exist yet. */
  ticketId: string | undefined;
}

/** The ticket that the job still has to release. */
export async function readPushTicket(database: Queryable, jobId: string): Promise<PushTicketRow | undefined> {
  const { rows } = await database.query<{
    ticket: string | null;
    server_uuid: string;
    scope: string;
    id: string;
    expires_in: number;
    timeout_ms: number;
    actor: string | null;
  }>(
    `select ticket, server_uuid, scope, id, expires_in, timeout_ms, actor
       from cnapi_push_tickets where job = $1::uuid`,
    [jobId],
  );
  return rows.map(({ ticket: ticketId, server_uuid: serverUuid, scope, id, expires_in, timeout_ms, actor }) => {
    const wanted = { serverUuid, scope, id, expiresInSeconds: expires_in, timeoutMs: timeout_ms };
    return { ...wanted, ticketId: ticketId ?? undefined, actor: actor ?? undefined };
  })[0];
}

/** @throws DutyLostError */
export async function recordPushTicket(database: Queryable, duty: HeldDuty, ticketId: string): Promise<void> {
  await fenced(database, duty, 'select cnapi_record_push_ticket($1::uuid, $2::uuid, $3::int, $4::uuid) as held', [
    ticketId,
  ]);
}

/** @throws DutyLostError */
export async function deletePushTicket(database: Queryable, duty: HeldDuty): Promise<void> {
  await fenced(database, duty, 'select cnapi_forget_push_ticket($1::uuid, $2::uuid, $3::int) as held');
}

/** @throws DutyLostError */
export async function beginVoting(database: Queryable, duty: HeldDuty): Promise<void> {
  await fenced(database, duty, 'select cnapi_begin_push_voting($1::uuid, $2::uuid, $3::int) as held');
}
