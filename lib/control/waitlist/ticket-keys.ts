/**
 * Idempotency keys of tickets. A caller repeats a create under its key when the answer was lost; it
 * then receives the ticket that the first request made or is about to make. A key lasts as long as
 * its ticket, which is deleted with its history. Called by `waitlist.ts`.
 */
import type { Queryable } from '../../platform/postgres/database.ts';
import { combineStatement, SqlParameters, statementName } from '../../platform/postgres/sql-text.ts';
import {
  type LockWait,
  type NewTicket,
  type TicketBounds,
  type TicketRefusal,
  ticketInsertionValues,
} from './ticket-store.ts';

export interface TicketKey {
  key: string;
  /** Hash of everything that distinguishes one request from another. */
  requestHash: string;
}

export interface KeyedTicket {
  /** Differs from the proposed uuid if the key had already created a ticket. */
  uuid: string;
  requestHash: string;
}

/** Returns a refusal when the key is new and there is no room. */
export async function createTicketOnce(
  database: Queryable,
  ticket: NewTicket,
  { key, requestHash, maxWaiting, maxOpen, lockMs }: TicketKey & TicketBounds & LockWait,
): Promise<KeyedTicket | TicketRefusal> {
  const { text, values } = combineStatement(
    `select made as uuid, made_by as "requestHash", refusal
       from cnapi_create_ticket_once($12::text, $13::text, cnapi_lock_within($16::int, $1::uuid), $2::text, $3::text, $4::text, $5::text, $6::json,
         $7::text, $8::text, $9::timestamptz, $10::bigint, $11::text, $14::int, $15::int)`,
    new SqlParameters([...ticketInsertionValues(ticket), key, requestHash, maxWaiting, maxOpen, lockMs ?? null]),
    ticket.record,
  );
  const name = statementName('add ticket once', ticket.record);
  const { rows } = await database.query<KeyedTicket & { refusal: TicketRefusal | null }>(text, values, { name });
  const { refusal, ...made } = rows[0] as KeyedTicket & { refusal: TicketRefusal | null };
  return refusal ?? made;
}
