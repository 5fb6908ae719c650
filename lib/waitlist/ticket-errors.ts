/** What can go wrong with tickets in a way that a caller can act on. Thrown by the facade. */
import { CnapiError } from '../errors.ts';
import type { Complaint, TicketStatus } from './ticket.ts';

/** There is no such ticket, or it was deleted. Text as the reference has it. */
export class TicketNotFoundError extends CnapiError {
  readonly ticketUuid: string;
  constructor(ticketUuid: string) {
    super('ResourceNotFound', 404, `no such ticket ${ticketUuid}`);
    this.ticketUuid = ticketUuid;
  }
}

/** A field that no ticket can have; where the reference crashed. */
export class InvalidTicketError extends CnapiError {
  constructor({ field, message }: Complaint) {
    super('InvalidParameters', 400, 'Request parameters failed validation', {
      errors: [{ field, code: 'Invalid', message: `${field} ${message}` }],
    });
  }
}

/** What has ended cannot be renewed. */
export class TicketEndedError extends CnapiError {
  readonly ticketUuid: string;
  constructor(ticketUuid: string, status: TicketStatus) {
    super('TicketEnded', 409, `Ticket ${ticketUuid} is ${status} and cannot be renewed; create another one`);
    this.ticketUuid = ticketUuid;
  }
}

/** More tickets are active or queued in this queue than it may hold. */
export class TooManyTicketsError extends CnapiError {
  constructor(limit: number) {
    super('TooManyTickets', 503, `This queue already holds ${limit} tickets; try again when some have ended`, {
      retryAfterSeconds: 5,
    });
  }
}
